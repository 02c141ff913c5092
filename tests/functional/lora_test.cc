// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "pentatron/base/safetensors.h"
#include "tests/functional/converted.h"
#include "tests/functional/tiny_run.h"

// Low-rank adapters end to end: trained, resumed, exported, loaded, merged. What the files mean to
// another program: tools/reference/peft_reference.py.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Values = std::vector<float>;

// A small trained model as a Hugging Face folder.
fs::path trained(const Options& model) {
  const fs::path folder = new_folder();
  (void)train(saving(model, folder / "checkpoint"));
  EXPECT_TRUE(convert_export(folder / "checkpoint", folder / "hf").ok());
  return folder / "hf";
}
const fs::path& base_folder() {
  static const fs::path kFolder = trained(small_llama());
  return kFolder;
}

Options tuning() {
  return small_llama()
      .with("--finetune")
      .with("--load", base_folder().string())
      .with("--lr", "0.02");
}
Options with_adapters() { return tuning().with("--lora-rank", 4); }

std::map<std::string, Values> tensors_of(const fs::path& path) {
  std::map<std::string, Values> tensors;
  const SafetensorsFile file(path);
  for (const auto& [name, entry] : file.header().entries) {
    EXPECT_EQ(entry.dtype, "F32") << name;
    const auto bytes = file.bytes(name);
    Values& values = tensors[name];
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return tensors;
}

// Numbers that look like no pattern, from -0.5 to 0.5.
float made_up(std::size_t i) {
  return static_cast<float>(std::fmod(static_cast<double>(i) * 0.61803398875, 1.0) - 0.5);
}

struct HandMade {
  fs::path adapter;
  fs::path merged;  // the model folder that says the same
};

// An adapter of rank 2 on the query and down projections, and the weights with it worked in: here
// in fp64, element by element.
HandMade hand_made(bool dora) {
  constexpr std::size_t kRank = 2;
  constexpr double kScale = 3.0 / 2.0;
  const fs::path folder = new_folder();
  const HandMade made{folder / "adapter", folder / "merged"};
  fs::create_directory(made.adapter);
  fs::copy(base_folder(), made.merged);
  write_file(made.adapter / "adapter_config.json", Json{{"peft_type", "LORA"},
                                                        {"r", kRank},
                                                        {"lora_alpha", 3},
                                                        {"use_dora", dora},
                                                        {"bias", "none"},
                                                        {"target_modules", {"q_proj", "down_proj"}}}
                                                       .dump());
  std::string weights = read_file(made.merged / "model.safetensors");
  const SafetensorsFile base(base_folder() / "model.safetensors");
  std::map<std::string, Values> tensors;
  std::vector<SafetensorsItem> items;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, Values values) {
    const auto [place, fresh] = tensors.emplace(name, std::move(values));
    items.push_back({name, "F32", std::move(shape), std::as_bytes(std::span(place->second))});
  };
  for (const auto& [name, entry] : base.header().entries) {
    const bool adapted = name.ends_with("q_proj.weight") || name.ends_with("down_proj.weight");
    if (!adapted) continue;
    const auto rows = static_cast<std::size_t>(entry.shape[0]);
    const auto columns = static_cast<std::size_t>(entry.shape[1]);
    Values down(kRank * columns), up(rows * kRank), magnitude(rows), weight(rows * columns);
    for (std::size_t i = 0; i < down.size(); ++i) down[i] = made_up(i + name.size());
    for (std::size_t i = 0; i < up.size(); ++i) up[i] = made_up(3 * i + 1);
    for (std::size_t i = 0; i < rows; ++i) magnitude[i] = 0.75F + made_up(i) / 2;
    std::memcpy(weight.data(), base.bytes(name).data(), weight.size() * sizeof(float));
    for (std::size_t row = 0; row < rows; ++row) {
      double squares = 0;
      std::vector<double> sum(columns);
      for (std::size_t c = 0; c < columns; ++c) {
        sum[c] = weight[row * columns + c];
        for (std::size_t r = 0; r < kRank; ++r) {
          sum[c] += kScale * up[row * kRank + r] * down[r * columns + c];
        }
        squares += sum[c] * sum[c];
      }
      const double factor = dora ? magnitude[row] / std::sqrt(squares) : 1.0;
      for (std::size_t c = 0; c < columns; ++c) {
        weight[row * columns + c] = static_cast<float>(sum[c] * factor);
      }
    }
    std::memcpy(weights.data() + base.header().data_offset + entry.begin, weight.data(),
                weight.size() * sizeof(float));
    const std::string module =
        "base_model.model." + name.substr(0, name.size() - std::string(".weight").size());
    const auto side = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    add(module + ".lora_A.weight", {side(kRank), side(columns)}, down);
    add(module + ".lora_B.weight", {side(rows), side(kRank)}, up);
    if (dora) add(module + ".lora_magnitude_vector", {side(rows)}, magnitude);
  }
  write_file(made.merged / "model.safetensors", weights);
  std::string text;
  write_safetensors(items, {{"format", "pt"}}, [&text](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  write_file(made.adapter / "adapter_model.safetensors", text);
  return made;
}

}  // namespace

TEST(Lora, Options) {
  const TinyRun plain = train(with_adapters());
  EXPECT_EQ(count(plain.program.out, "parts are frozen"), 1U) << plain.program.out;
  // B is zero at first: the model underneath speaks alone.
  EXPECT_EQ(plain.first_loss(), train(tuning()).first_loss());
  EXPECT_NE(plain.losses(), train(tuning()).losses());
  const std::vector<std::pair<std::string, std::string>> changes = {{"--lora-rank", "3"},
                                                                    {"--lora-alpha", "9"},
                                                                    {"--lora-dropout", "0.3"},
                                                                    {"--lora-rslora", ""},
                                                                    {"--lora-dora", ""}};
  for (const auto& [name, value] : changes) {
    const Options other =
        value.empty() ? with_adapters().with(name) : with_adapters().with(name, value);
    EXPECT_NE(train(other).losses(), plain.losses()) << name;
  }
  // Alpha is twice the rank unless it is said; all linear layers are meant unless some are named.
  EXPECT_EQ(train(with_adapters().with("--lora-alpha", "8")).losses(), plain.losses());
  const auto modules = [](std::vector<std::string> names) {
    return with_adapters().with("--lora-target-modules", std::move(names));
  };
  EXPECT_EQ(train(modules({"down", "up", "gate", "o", "v", "k", "q"})).losses(), plain.losses());
  EXPECT_NE(train(modules({"q", "v"})).losses(), plain.losses());
  expect_refusal(try_train(modules({"qkv"})).program, 2,
                 {"--lora-target-modules 'qkv'", "q, k, v, o, gate, up, down"});
  const TinyRun without = train(small_llama().with("--lora-alpha", "4"));
  EXPECT_EQ(count(without.program.out, "--lora-alpha (there is no --lora-rank)"), 1U);
  // A dry run knows what is trained and what is not.
  const ProgramResult planned = call(with_adapters().with("--dry-run").words("pretrain_gpt"));
  EXPECT_TRUE(planned.ok()) << planned.describe();
  EXPECT_EQ(count(planned.out, " of them are trained\n"), 1U) << planned.describe();
}

// On a model of maximal update parametrisation, whose checkpoint is ours: it has no published form.
TEST(Lora, FollowsTheWidthWithMup) {
  const Options model = small_llama().with("--use-mup").with("--mup-base-hidden-size", 4);
  const fs::path base = new_folder();
  (void)train(saving(model, base));
  const Options tuned = model.with("--finetune")
                            .with("--load", base.string())
                            .with("--lr", "0.02")
                            .with("--lora-rank", 4);
  const TinyRun longer = train(tuned.with("--train-iters", 20));
  const std::vector<double> losses = longer.losses();
  ASSERT_EQ(losses.size(), 20U);
  const auto sum = [](auto begin, auto end) { return std::accumulate(begin, end, 0.0); };
  EXPECT_LT(sum(losses.end() - 5, losses.end()), sum(losses.begin(), losses.begin() + 5));
  const TinyRun run = train(tuned);
  EXPECT_EQ(count(run.program.out, " of adapters' A\n"), 1U) << run.program.out;
  const Options two = tuned.with("--distributed-backend", "threads")
                          .with("--world-size", 2)
                          .with("--tensor-model-parallel-size", 2);
  EXPECT_NEAR(train(two).last_loss(), run.last_loss(), 1e-4);
  const fs::path folder = new_folder();
  (void)train(saving(tuned.with("--exit-interval", 2), folder));
  EXPECT_EQ(train(resuming(tuned.without("--finetune"), folder)).last_loss(), run.last_loss());
  expect_refusal(try_train(tuned.with("--optimizer", "sgd")).program, 2,
                 {"--use-mup with --lora-rank and --optimizer sgd"});
}

// Four layers, so that two pipeline ranks can hold two stages each.
TEST(Lora, EveryLayoutTrainsTheSame) {
  const Options model = small_llama().with("--num-layers", 4);
  const fs::path base = trained(model);
  for (const bool dora : {false, true}) {
    Options one = model.with("--finetune")
                      .with("--load", base.string())
                      .with("--lr", "0.02")
                      .with("--lora-rank", 4)
                      .with("--lora-dropout", "0.2");
    if (dora) one = one.with("--lora-dora");
    const TinyRun alone = train(one);
    const auto ranks = [&one](std::int64_t size) {
      return one.with("--distributed-backend", "threads").with("--world-size", size);
    };
    const Options tensor = ranks(2).with("--tensor-model-parallel-size", 2);
    const Options pipeline = ranks(2).with("--pipeline-model-parallel-size", 2);
    const Options data = ranks(2).with("--micro-batch-size", 1);
    const Options both =
        ranks(4).with("--tensor-model-parallel-size", 2).with("--pipeline-model-parallel-size", 2);
    for (const Options& layout :
         {tensor, tensor.with("--sequence-parallel"), pipeline,
          pipeline.with("--num-virtual-stages-per-pipeline-rank", 2), both,
          both.with("--sequence-parallel").with("--num-virtual-stages-per-pipeline-rank", 2),
          ranks(2).with("--context-parallel-size", 2), data.with("--use-distributed-optimizer"),
          data.with("--use-megatron-fsdp"),
          ranks(4)
              .with("--micro-batch-size", 1)
              .with("--tensor-model-parallel-size", 2)
              .with("--use-megatron-fsdp")}) {
      SCOPED_TRACE(::testing::PrintToString(layout.words("")));
      expect_same_losses(train(layout), alone, 1e-5);
    }
  }
}

TEST(Lora, ResumesBitForBitAndRefusesAnotherModel) {
  const Options run =
      with_adapters().with("--lora-dora").with("--lora-dropout", "0.1").with("--train-iters", 4);
  const fs::path whole = new_folder();
  const TinyRun straight = train(saving(run, whole, 2));
  const fs::path broken = new_folder();
  (void)train(saving(run.with("--exit-interval", 2), broken, 2));
  const Options rest = run.without("--finetune");
  const TinyRun second = train(resuming(rest, broken, 2));
  EXPECT_EQ(state_hash(broken, 4), state_hash(whole, 4));
  const std::vector<double> losses = straight.losses();
  EXPECT_EQ(second.losses(), (std::vector<double>{losses.begin() + 2, losses.end()}));
  // Frozen weights have no moments.
  const auto shapes = saved_shapes(whole, 4);
  std::size_t moments = 0;
  for (const auto& [name, shape] : shapes) {
    if (name.starts_with("param/")) continue;
    moments += name.find("/decoder") != std::string::npos;
    EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
  }
  EXPECT_GT(moments, 20U);
  expect_refusal(try_train(resuming(rest.with("--lora-rank", 2), broken, 2)).program, 7,
                 {"lora_rank 4 in the checkpoint, 2 asked"});
  expect_refusal(try_train(small_llama().with("--finetune").with("--load", whole.string())).program,
                 7, {"lora_rank"});
}

TEST(Lora, ExportsMergedAndAlone) {
  for (const bool dora : {false, true}) {
    const Options run = dora ? with_adapters().with("--lora-dora") : with_adapters();
    const fs::path folder = new_folder();
    (void)train(saving(run, folder / "tuned"));
    const ProgramResult merged = convert_export(folder / "tuned", folder / "merged");
    ASSERT_TRUE(merged.ok()) << merged.describe();
    const std::string tokens = generated(folder / "tuned");
    EXPECT_EQ(generated(folder / "merged"), tokens);
    const Options judged = small_llama().with("--finetune").with("--train-iters", 1);
    const TinyRun of_merged = train(judged.with("--load", (folder / "merged").string()));
    EXPECT_NEAR(of_merged.first_loss(),
                train(judged.with("--load", base_folder().string())).first_loss(), 1.0);
    EXPECT_NE(of_merged.first_loss(),
              train(judged.with("--load", base_folder().string())).first_loss());

    const ProgramResult alone = convert_export(folder / "tuned", folder / "adapter", {"--adapter"});
    ASSERT_TRUE(alone.ok()) << alone.describe();
    const Json config = Json::parse(read_file(folder / "adapter/adapter_config.json"));
    EXPECT_EQ(config.at("r"), 4);
    EXPECT_EQ(config.at("lora_alpha"), 8.0);
    EXPECT_EQ(config.at("use_dora"), dora);
    EXPECT_EQ(config.at("base_model_name_or_path"), base_folder().string());
    EXPECT_EQ(config.at("target_modules").size(), 14U);
    const auto tensors = tensors_of(folder / "adapter/adapter_model.safetensors");
    EXPECT_EQ(tensors.size(), dora ? 42U : 28U);
    EXPECT_EQ(tensors.at("base_model.model.model.layers.1.mlp.down_proj.lora_A.weight").size(),
              4U * 64U);
    // Started from again, on the folder or on its own checkpoint, they say the same.
    const TinyRun again = train(judged.with("--load", base_folder().string())
                                    .with("--lora-load", (folder / "adapter").string()));
    EXPECT_EQ(count(again.program.out, " loading the adapter "), 1U) << again.program.out;
    Options own = judged.with("--load", (folder / "tuned").string()).with("--lora-rank", 4);
    if (dora) own = own.with("--lora-dora");
    EXPECT_EQ(again.first_loss(), train(own).first_loss());
    EXPECT_NEAR(again.first_loss(), of_merged.first_loss(), 1e-5);
  }
  expect_refusal(convert_export(base_folder(), new_folder() / "x", {"--adapter"}), 7, {});
}

TEST(Lora, LoadsAnAdapter) {
  const Options judged = small_llama().with("--finetune").with("--train-iters", 1);
  for (const bool dora : {false, true}) {
    const HandMade made = hand_made(dora);
    const TinyRun merged = train(judged.with("--load", made.merged.string()));
    const Options adapted =
        judged.with("--load", base_folder().string()).with("--lora-load", made.adapter.string());
    EXPECT_NEAR(train(adapted).first_loss(), merged.first_loss(), 1e-5);
    EXPECT_GT(std::abs(train(tuning()).first_loss() - merged.first_loss()), 1e-3);
    expect_same_losses(train(adapted.with("--distributed-backend", "threads")
                                 .with("--world-size", 2)
                                 .with("--tensor-model-parallel-size", 2)),
                       train(adapted), 1e-5);
    // Its rank and modules stand where the run says none.
    expect_refusal(
        try_train(adapted.with("--lora-target-modules", std::vector<std::string>{"q"})).program, 2,
        {"mlp.linear_fc2.weight", "add down"});
    expect_refusal(try_train(adapted.with("--lora-rank", 1)).program, 8, {"--lora-rank"});
  }
  // Outside data.
  const HandMade made = hand_made(false);
  const fs::path config = made.adapter / "adapter_config.json";
  const std::string text = read_file(config);
  const Options run =
      judged.with("--load", base_folder().string()).with("--lora-load", made.adapter.string());
  const auto refused = [&](const std::string& before, const std::string& after,
                           const std::vector<std::string>& parts) {
    std::string changed = text;
    changed.replace(changed.find(before), before.size(), after);
    write_file(config, changed);
    const ProgramResult result = try_train(run).program;
    EXPECT_FALSE(result.ok());
    for (const std::string& part : parts) EXPECT_GT(count(result.err, part), 0U) << result.err;
  };
  refused("\"LORA\"", "\"IA3\"", {"peft_type"});
  refused("\"r\":2", "\"r\":3", {"has the shape [2, "});
  refused("\"use_dora\":false", "\"use_dora\":true", {"lacks", "lora_magnitude_vector"});
  refused("\"bias\":\"none\"", "\"bias\":\"all\"", {"bias"});
}

}  // namespace pentatron::functional
