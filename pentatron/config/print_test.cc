// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/print.h"

#include <gtest/gtest.h>

#include <map>

#include "pentatron/base/error.h"
#include "pentatron/config/config_json.h"
#include "pentatron/config/option_table.h"

namespace pentatron::config {
namespace {

TEST(ArgumentDump, IsMegatronsForm) {
  RunConfig config;
  config.data.data_path = {"0.5", "it's"};
  config.optimizer.lr = 6e-4;
  config.optimizer.adam_eps = 1e-8;
  config.model.num_layers = 12;
  config.training.exit_duration_in_mins = 5;
  const std::string text = argument_dump(config);
  EXPECT_TRUE(text.starts_with("------------------------ arguments ------------------------\n"));
  EXPECT_TRUE(text.ends_with("\n-------------------- end of arguments ---------------------"));
  for (const char* line : {
           "\n  adam_beta1 ...................................... 0.9\n",
           "\n  adam_eps ........................................ 1e-08\n",
           "\n  add_bias_linear ................................. True\n",
           "\n  bf16 ............................................ False\n",
           "\n  data_parallel_size .............................. 1\n",
           "\n  data_path ....................................... ['0.5', \"it's\"]\n",
           "\n  exit_duration_in_mins ........................... 5\n",
           "\n  exit_interval ................................... None\n",
           "\n  exit_signal ..................................... 15\n",
           "\n  global_batch_size ............................... None\n",
           "\n  lr .............................................. 0.0006\n",
           "\n  lr_decay_style .................................. linear\n",
           "\n  lr_warmup_fraction .............................. None\n",
           "\n  make_vocab_size_divisible_by .................... 128\n",
           "\n  num_layers ...................................... 12\n",
           "\n  split ........................................... 969, 30, 1\n",
           "\n  use_checkpoint_opt_param_scheduler .............. False\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_LT(text.find("  lr ...."), text.find("  lr_decay_iters "));
  EXPECT_LT(text.find("  adam_beta1 "), text.find("  bf16 "));
}

TEST(Help, ByTopicAndOption) {
  const std::string topics = help_text("");
  EXPECT_NE(topics.find("\n  optimizer "), std::string::npos) << topics;
  const std::string optimizer = help_text("optimizer");
  EXPECT_NE(optimizer.find("--min-lr X\n      lowest learning rate"), std::string::npos)
      << optimizer;
  EXPECT_EQ(optimizer.find("--num-layers"), std::string::npos);
  EXPECT_NE(optimizer.find("known options that are refused"), std::string::npos);
  EXPECT_NE(help_text("--perform-rl-step").find("planned"), std::string::npos);
  EXPECT_NE(help_text("num_layers").find("--num-layers N"), std::string::npos);
  EXPECT_NE(help_text("lr-decay-style").find("{constant|linear|cosine|inverse-square-root|WSD}"),
            std::string::npos);
  EXPECT_GT(help_text("all").size(), 50'000U);
  try {
    static_cast<void>(help_text("optimiser"));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(std::string(error.what()).find("--optimizer"), std::string::npos) << error.what();
  }
  ParseRequest request;
  request.words = {"--bogus", "--help", "model"};
  const ParsedOptions parsed = parse(request);
  EXPECT_EQ(parsed.action, Action::kHelp);
  EXPECT_EQ(parsed.help_topic, "model");
  request.words = {"--help", "--lr"};
  EXPECT_EQ(parse(request).help_topic, "--lr");
  request.words = {"-h"};
  EXPECT_EQ(parse(request).action, Action::kHelp);
}

// Counts the fields of an aggregate by the longest list of initialisers that it takes.
struct AnyValue {
  template <typename T>
  operator T() const;  // only named in unevaluated code
};
// An optional takes AnyValue in two ways, so it is counted by nullopt.
template <typename T, typename... Values>
constexpr int num_fields() {
  if constexpr (requires { T{std::declval<Values>()..., std::declval<AnyValue>()}; }) {
    return num_fields<T, Values..., AnyValue>();
  } else if constexpr (requires { T{std::declval<Values>()..., std::nullopt}; }) {
    return num_fields<T, Values..., std::nullopt_t>();
  } else {
    return static_cast<int>(sizeof...(Values));
  }
}

TEST(ConfigJson, CoversEveryField) {
  std::map<std::string_view, int> listed;
  for (const ConfigField& field : config_fields()) ++listed[field.part];
  EXPECT_EQ(listed["model"], num_fields<ModelConfig>());
  EXPECT_EQ(listed["parallel"], num_fields<ParallelConfig>());
  EXPECT_EQ(listed["data"], num_fields<DataConfig>());
  EXPECT_EQ(listed["optimizer"], num_fields<OptimizerConfig>());
  EXPECT_EQ(listed["training"], num_fields<TrainingConfig>());
  EXPECT_EQ(listed["logging"], num_fields<LoggingConfig>());
  EXPECT_EQ(listed["checkpoint"], num_fields<CheckpointConfig>());
  EXPECT_EQ(num_fields<RunConfig>(), 7);
}

TEST(ConfigJson, RoundTripsEveryField) {
  RunConfig config;
  int step = 0;
  for (const ConfigField& field : config_fields()) {
    ++step;
    OptionValue value = field.binding.get(config);
    if (auto* flag = std::get_if<bool>(&value)) {
      *flag = !*flag;
    } else if (auto* integer = std::get_if<std::int64_t>(&value)) {
      *integer = (std::int64_t{1} << 62) + step;
      const bool bounded = field.check != nullptr && !field.check(value).empty();
      if (bounded) *integer = 2 + step % 5;
    } else if (auto* text = std::get_if<std::string>(&value)) {
      *text = std::string(field.name) + " \"\xc3\xa4\"";
    } else if (auto* list = std::get_if<std::vector<std::string>>(&value)) {
      *list = {"a", std::string(field.name)};
    } else if (field.check != nullptr && !field.check(2.0 + step).empty()) {
      value = 1.0 / (3.0 + step);  // a share
    } else {
      value = 1.0 + 1.0 / (3.0 + step);
    }
    field.binding.set(config, value);
    EXPECT_EQ(field.binding.get(config), value) << field.name;
  }
  const RunConfig again = from_json(to_json(config, 2), "test");
  EXPECT_EQ(to_json(again), to_json(config));
  EXPECT_EQ(again.optimizer.adam_eps, config.optimizer.adam_eps);
  EXPECT_EQ(again.model.seed, config.model.seed);
  EXPECT_EQ(again.optimizer.lr_warmup_fraction, config.optimizer.lr_warmup_fraction);
  EXPECT_EQ(again.data.data_path, config.data.data_path);
  EXPECT_NE(to_json(again), to_json(RunConfig{}));
}

TEST(ConfigJson, HoldsTheFieldsOfAResumeClass) {
  RunConfig config;
  config.training.precision = "bf16";
  EXPECT_EQ(to_json(config, Resume::kRun),
            R"({"apply_wd_to_qk_layernorm":false,"attention_dropout":0.1,)"
            R"("freeze_parameters":[],"hidden_dropout":0.1,"label_smoothing":0.0,)"
            R"("lora_dropout":0.0,"loss_mean":"tokens","precision":"bf16","seed":1234})");
  EXPECT_NE(to_json(config, Resume::kModel).find(R"("num_layers":0)"), std::string::npos);
  EXPECT_EQ(to_json(config, Resume::kModel).find("seq_length"), std::string::npos);
  EXPECT_NE(to_json(config, Resume::kSchedule).find("adam_beta1"), std::string::npos);
}

TEST(ConfigJson, RefusesBadText) {
  const auto message = [](const char* text) {
    try {
      static_cast<void>(from_json(text, "f.json"));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("{}"), "");
  EXPECT_EQ(message(R"({"model": {"num_layers": 3}})"), "");
  for (const char* text :
       {"", "[]", R"({"model": 3})", R"({"model": {"num_layers": "3"}})",
        R"({"model": {"num_layers": 3.5}})", R"({"model": {"num_layers": 9223372036854775808}})",
        R"({"model": {"seed": -1}})", R"({"model": {"swiglu": 1}})", R"({"model": {"no_such": 1}})",
        R"({"modle": {}})", R"({"data": {"data_path": [1]}})",
        R"({"model": {"hidden_dropout": null}})"}) {
    EXPECT_NE(message(text).find("f.json"), std::string::npos) << text << ": " << message(text);
  }
}

}  // namespace
}  // namespace pentatron::config
