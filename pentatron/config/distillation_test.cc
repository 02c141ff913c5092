// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/distillation.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/config/problems.h"

namespace pentatron::config {
namespace {

std::string message(const std::string& text) {
  try {
    static_cast<void>(parse_distillation(text, "f.yaml"));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(DistillationForm, ReadsTheKeysOfMegatron) {
  // As Megatron-LM's own test and its page on distillation have them.
  const DistillationForm form = parse_distillation(
      R"({intermediate_layer_pairs: [["decoder.final_layernorm", "decoder.final_layernorm"]],
          logit_layers: ["output_layer", "output_layer"], skip_lm_loss: true, kd_loss_scale: 10.0})",
      "f.yaml");
  ASSERT_EQ(form.pairs.size(), 1U);
  EXPECT_EQ(form.pairs[0].student, "decoder.final_layernorm");
  EXPECT_FALSE(form.pairs[0].mean_squares);
  EXPECT_FALSE(form.lm_loss);
  EXPECT_EQ(form.scale, 10.0);
  EXPECT_EQ(form.temperature, 1.0);
  const DistillationForm more = parse_distillation(
      "intermediate_layer_pairs:\n"
      "  - [decoder.layers.0.input_layernorm, decoder.layers.0.input_layernorm]\n"
      "  - [decoder.layers.1, decoder.layers.30.pre_mlp_layernorm, mse]\n"
      "skip_lm_loss: false\n"
      "kd_loss_scale: 2\n"
      "logit_kl_temperature: 1.5\n",
      "f.yaml");
  EXPECT_EQ(more.student_layers(),
            (std::vector<std::string>{"decoder.layers.0.input_layernorm", "decoder.layers.1"}));
  EXPECT_EQ(more.teacher_layers()[1], "decoder.layers.30.pre_mlp_layernorm");
  EXPECT_TRUE(more.pairs[1].mean_squares);
  EXPECT_TRUE(more.lm_loss);
  EXPECT_EQ(more.scale, 2.0);
  EXPECT_FALSE(more.alpha);
  EXPECT_EQ(more.temperature, 1.5);
  const DistillationForm newer = parse_distillation("kd_loss_alpha: 0.25", "f.yaml");
  EXPECT_EQ(newer.alpha, 0.25);
  EXPECT_TRUE(newer.lm_loss);
  EXPECT_FALSE(parse_distillation("kd_loss_alpha: 1", "f.yaml").lm_loss);
}

TEST(DistillationForm, NothingAsksForTheDefaults) {
  for (const char* text : {"", "# nothing\n", "{}", "---\n"}) {
    const DistillationForm form = parse_distillation(text, "f.yaml");
    EXPECT_TRUE(form.pairs.empty()) << text;
    EXPECT_FALSE(form.lm_loss) << text;
    EXPECT_EQ(form.temperature, 1.0) << text;
  }
  EXPECT_TRUE(read_distillation("").pairs.empty());
}

struct Refused {
  const char* text;
  const char* part;  // besides the file's name
};

TEST(DistillationForm, RefusesWhatItDoesNotUnderstand) {
  constexpr Refused kCases[] = {
      {"[1]", "expected a mapping"},
      {"word", "expected a mapping"},
      {"{a: b", "not YAML"},
      {"kd_loss_scal: 1", "unknown key 'kd_loss_scal'"},
      {"logit_kl_topk: 4", "unknown key"},
      {"? [a]\n: 1", "unknown key"},
      {"skip_lm_loss: 3", "skip_lm_loss is '3', expected true or false"},
      {"skip_lm_loss: \"true\"", "skip_lm_loss"},
      {"skip_lm_loss:", "skip_lm_loss is nothing"},
      {"skip_lm_loss: [true]", "skip_lm_loss is a list"},
      {"kd_loss_scale: 0", "kd_loss_scale is '0', expected a number above 0"},
      {"kd_loss_scale: -1", "kd_loss_scale"},
      {"kd_loss_scale: .nan", "kd_loss_scale"},
      {"kd_loss_scale: .inf", "kd_loss_scale"},
      {"kd_loss_scale: 1e999", "kd_loss_scale"},
      {"kd_loss_scale: ten", "kd_loss_scale"},
      {"kd_loss_scale: {a: 1}", "kd_loss_scale"},
      {"logit_kl_temperature: 0.0", "logit_kl_temperature"},
      {"kd_loss_alpha: 1.01", "kd_loss_alpha is '1.01', expected a number from 0 to 1"},
      {"kd_loss_alpha: 0.5\nkd_loss_scale: 1", "drop one of the two"},
      {"kd_loss_alpha: 1\nskip_lm_loss: true", "drop one of the two"},
      {"kd_loss_scale: 1\nkd_loss_scale: 2", "f.yaml:2: 'kd_loss_scale' stands there twice"},
      {"logit_layers: [output_layer]", "logit_layers"},
      {"logit_layers: [output_layer, decoder.final_layernorm]", "logit_layers"},
      {"logit_layers: output_layer", "logit_layers"},
      {"intermediate_layer_pairs: decoder.layers.0", "intermediate_layer_pairs"},
      {"intermediate_layer_pairs: [decoder.layers.0]", "intermediate_layer_pairs"},
      {"intermediate_layer_pairs: [[decoder.layers.0]]", "intermediate_layer_pairs"},
      {"intermediate_layer_pairs: [[decoder.layers.0, [decoder.layers.0]]]", "names of modules"},
      {"intermediate_layer_pairs: [[decoder.layers.0, decoder.layers.0, l1]]", "cosine or mse"},
      {"intermediate_layer_pairs: [[decoder.layers.0, decoder.layers.0, mse, 1]]", "pairs"},
      {"intermediate_layer_pairs:\n- [decoder.layers.0, decoder.layer.0]",
       "f.yaml:2: intermediate_layer_pairs names the module 'decoder.layer.0'"},
      {"intermediate_layer_pairs: [[decoder.layers.01, decoder.layers.0]]", "decoder.layers.01"},
      {"intermediate_layer_pairs: [[decoder.layers.-1, decoder.layers.0]]", "decoder.layers.-1"},
      {"intermediate_layer_pairs: [[decoder.layers., decoder.layers.0]]", "names the module"},
      {"intermediate_layer_pairs: [[decoder.layers.99999999999999999999, decoder.layers.0]]",
       "names the module"},
      {"intermediate_layer_pairs: [[decoder.layers.0.mlp, decoder.layers.0]]", "known are"},
  };
  for (const Refused& c : kCases) {
    const std::string said = message(c.text);
    EXPECT_NE(said.find("f.yaml"), std::string::npos) << c.text << ": " << said;
    EXPECT_NE(said.find(c.part), std::string::npos) << c.text << ": " << said;
  }
  std::string many = "intermediate_layer_pairs:\n";
  for (int i = 0; i < 1001; ++i) many += "- [decoder.layers.0, decoder.layers.0]\n";
  EXPECT_NE(message(many).find("at most 1000"), std::string::npos);
  EXPECT_NE(message(std::string(100'000, '[')).find("not YAML"), std::string::npos);
}

TEST(DistillationForm, LayersMustBeInBothModels) {
  ModelConfig student, teacher;
  student.num_layers = 2;
  teacher.num_layers = 4;
  student.hidden_size = teacher.hidden_size = 16;
  const auto said = [&](const char* pair) {
    const DistillationForm form =
        parse_distillation(std::string("intermediate_layer_pairs: [") + pair + "]", "f.yaml");
    try {
      check_layers(form, student, teacher, "f.yaml");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(said("[decoder.layers.1, decoder.layers.3]"), "");
  EXPECT_NE(said("[decoder.layers.2, decoder.layers.3]").find("the student has 2 layers, 0 to 1"),
            std::string::npos);
  EXPECT_NE(said("[decoder.layers.1, decoder.layers.4.input_layernorm]").find("the teacher has 4"),
            std::string::npos);
  teacher.hidden_size = 32;
  EXPECT_NE(said("[decoder.final_layernorm, decoder.final_layernorm]").find("16 channels"),
            std::string::npos);
  check_layers({}, student, teacher, "f.yaml");
}

TEST(DistillationRules, NameWhatDoesNotGoTogether) {
  const auto said = [](const auto& change) {
    RunConfig config;
    config.checkpoint.export_kd_teacher_load = "teacher";
    change(config);
    Problems problems;
    check_distillation(config, problems);
    return problems.empty() ? std::string() : problems.lines().front();
  };
  EXPECT_EQ(said([](RunConfig&) {}), "");
  EXPECT_EQ(said([](RunConfig& c) {
              c.checkpoint.export_kd_teacher_load.clear();
              c.parallel.pipeline_model_parallel_size = 2;
            }),
            "");
  const auto refused = [&](const auto& change, const char* part) {
    const std::string line = said(change);
    EXPECT_NE(line.find("--export-kd-teacher-load does not go with"), std::string::npos) << line;
    EXPECT_NE(line.find(part), std::string::npos) << line;
  };
  refused([](RunConfig& c) { c.parallel.pipeline_model_parallel_size = 2; },
          "--pipeline-model-parallel-size 2");
  refused([](RunConfig& c) { c.parallel.context_parallel_size = 4; }, "--context-parallel-size 4");
  refused([](RunConfig& c) { c.training.cuda_graph_impl = "full_iteration"; },
          "--cuda-graph-impl full_iteration");
  refused([](RunConfig& c) { c.training.loss_mean = "micro-batches"; },
          "--loss-mean micro-batches");
  refused([](RunConfig& c) { c.model.fp8 = "hybrid"; }, "--fp8-format hybrid");
}

}  // namespace
}  // namespace pentatron::config
