// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/functional/tiny_run.h"

// A student that learns from a teacher, end to end: options, log, resume, what is saved.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

constexpr const char* kForm =
    "intermediate_layer_pairs: [[decoder.final_layernorm, decoder.final_layernorm]]\n"
    "logit_layers: [output_layer, output_layer]\n"
    "skip_lm_loss: true\n"
    "kd_loss_scale: 1.0\n";

fs::path form_file(const std::string& text) {
  const fs::path path = new_folder() / "kd.yaml";
  write_file(path, text);
  return path;
}

// A trained model of three layers.
const fs::path& teacher() {
  static const fs::path kFolder = [] {
    const fs::path folder = new_folder();
    (void)train(saving(small_llama().with("--num-layers", 3).with("--train-iters", 20), folder));
    return folder;
  }();
  return kFolder;
}

Options student() { return small_llama().with("--export-kd-teacher-load", teacher().string()); }

TEST(Distillation, Options) {
  const TinyRun plain = train(small_llama()), run = train(student());
  // The student's own loss is told, though it is not trained on.
  EXPECT_NEAR(run.first_loss(), plain.first_loss(), 1e-6 * plain.first_loss());
  EXPECT_NE(run.last_loss(), plain.last_loss());
  EXPECT_NE(run.program.out.find(" > learns from " + teacher().string() + ": 3 layers of 16 "),
            std::string::npos);
  EXPECT_EQ(run.program.err.find("tokenizer"), std::string::npos) << run.program.err;
  const std::string line = run.iteration_lines().at(0);
  for (const char* part : {"lm loss: ", "total loss: ", "logits distillation loss: "}) {
    EXPECT_NE(line.find(part), std::string::npos) << line;
  }
  EXPECT_EQ(line.find("intermediate distillation loss"), std::string::npos) << line;
  // The total is summed in fp32, its parts are told in fp64.
  const std::vector<double> total = run.series("train", "total_loss");
  const std::vector<double> logits = run.series("train", "logits_distillation_loss");
  ASSERT_EQ(total.size(), logits.size());
  for (std::size_t i = 0; i < total.size(); ++i) EXPECT_NEAR(total[i], logits[i], 1e-6 * logits[i]);
  const TinyRun formed = train(student().with("--export-kd-cfg", form_file(kForm).string()));
  EXPECT_NE(formed.iteration_lines().at(0).find("intermediate distillation loss: "),
            std::string::npos);
  EXPECT_NE(formed.last_loss(), run.last_loss());
  // What Megatron-LM's lists say besides.
  const TinyRun more = train(student()
                                 .with("--export-te-mcore-model")
                                 .with("--export-kd-teacher-ckpt-format", "torch_dist"));
  expect_same_losses(more, run, 0);
  expect_no_effect(more.program, "--export-te-mcore-model");
  expect_no_effect(more.program, "--export-kd-teacher-ckpt-format");
  expect_no_effect(train(small_llama().with("--export-kd-cfg", form_file(kForm).string())).program,
                   "--export-kd-cfg");
  expect_refusal(try_train(student().with("--export-kd-teacher-model-config", "x.yaml")).program, 2,
                 {"--export-kd-teacher-model-config", "holds the options of its model"});
}

TEST(Distillation, LearnsAndGoesOnBitForBit) {
  const Options options = student()
                              .with("--export-kd-cfg", form_file(kForm).string())
                              .with("--train-iters", 24)
                              .with("--log-params-norm");
  const fs::path whole = new_folder(), parts = new_folder();
  const std::string before = state_hash(teacher());
  const TinyRun run = train(saving(options, whole));
  const std::vector<double> losses = run.series("train", "logits_distillation_loss");
  EXPECT_LT(losses.back(), 0.6 * losses.front());
  EXPECT_LT(run.last_loss(), run.first_loss());
  (void)train(saving(options.with("--exit-interval", 10), parts));
  (void)train(resuming(options, parts));
  EXPECT_EQ(state_hash(parts), state_hash(whole));
  EXPECT_EQ(state_hash(teacher()), before);
  // What is saved is a model like any other, and the norm is its own.
  EXPECT_EQ(saved_shapes(whole, 24), [] {
    const fs::path folder = new_folder();
    (void)train(saving(small_llama().with("--train-iters", 24), folder));
    return saved_shapes(folder, 24);
  }());
  const Options alone =
      small_llama().with("--finetune").with("--load", whole.string()).with("--log-params-norm");
  EXPECT_LT(train(alone).first_loss(), run.first_loss());
}

TEST(Distillation, AHuggingFaceFolderTeachesTheSame) {
  const fs::path hf = new_folder() / "hf";
  ASSERT_TRUE(convert_export(teacher(), hf).ok());
  expect_same_losses(train(student().with("--export-kd-teacher-load", hf.string())),
                     train(student()), 0);
}

TEST(Distillation, WhatDoesNotFitIsRefused) {
  const auto refused = [](const Options& options, int code, std::vector<std::string> parts) {
    expect_refusal(try_train(options).program, code, parts);
  };
  const auto formed = [](const std::string& text) {
    return student().with("--export-kd-cfg", form_file(text).string());
  };
  refused(formed("kd_loss_scal: 1"), 2, {"kd.yaml:1", "kd_loss_scal"});
  refused(formed("skip_lm_loss: maybe"), 2, {"kd.yaml:1", "skip_lm_loss", "true or false"});
  refused(formed("intermediate_layer_pairs: [[decoder.layers.7, decoder.layers.0]]"), 2,
          {"decoder.layers.7", "the student has 2 layers"});
  refused(student().with("--export-kd-teacher-load", (new_folder() / "none").string()), 7,
          {"--export-kd-teacher-load", "no checkpoint there"});
  refused(student().with("--loss-mean", "micro-batches"), 2, {"--loss-mean micro-batches"});
  refused(student().with("--seq-length", 128).with("--max-position-embeddings", 128), 2,
          {"--export-kd-teacher-load", "--seq-length"});
}

}  // namespace
}  // namespace pentatron::functional
