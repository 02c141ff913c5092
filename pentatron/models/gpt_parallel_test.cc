// SPDX-License-Identifier: Apache-2.0
// Whole models on tensor-parallel ranks and pipeline stages against one process, fp64, with
// dropout, two documents in a row and an uneven mask; and each planted fault must show.
#include <gtest/gtest.h>

#include "pentatron/base/fault.h"
#include "pentatron/models/model_test_support.h"

namespace pentatron::models {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

config::ModelConfig with_dropout(config::ModelConfig config) {
  config.hidden_dropout = 0.2;
  config.attention_dropout = 0.15;
  return config;
}

struct Placement {
  std::int64_t tensor_size = 1;
  std::int64_t pipeline_size = 1;
  bool sequence_parallel = false;
};

Tensors run(const config::ModelConfig& config, const Placement& layout) {
  Gathered out;
  const Tensors weights = random_weights(config);
  const BatchMeta batch = make_batch({{7, 5}, {12}}, config.vocab_size);
  run_layout({layout.tensor_size, layout.sequence_parallel}, precision_policy("fp64"),
             [&](const parallel_layers::LeafContext& context) {
               run_model(config, context, layout.pipeline_size, weights, batch, out);
             });
  EXPECT_TRUE(out.complete());
  return out.tensors();
}

TEST(GptParallel, EveryLayoutGivesTheSameLossAndGradients) {
  for (const config::ModelConfig& kind : {gpt2_kind(), llama_kind()}) {
    const config::ModelConfig config = with_dropout(kind);
    const Tensors one = run(config, {});
    for (const Placement& layout :
         {Placement{2, 1, false}, Placement{2, 1, true}, Placement{4, 1, false},
          Placement{4, 1, true}, Placement{1, 2, false}, Placement{2, 2, true}}) {
      const auto [off, name] = worst_difference(run(config, layout), one);
      EXPECT_LE(off, 1e-12) << name << ": tp " << layout.tensor_size << " pp "
                            << layout.pipeline_size << " sp " << layout.sequence_parallel << " "
                            << config.normalization;
    }
  }
}

TEST(GptParallel, DropoutAndSeedMatter) {
  const Tensors with = run(with_dropout(gpt2_kind()), {});
  const Tensors without = run(gpt2_kind(), {});
  EXPECT_GT(difference(with.at("loss"), without.at("loss")), 1e-6);
}

TEST(GptParallel, EveryPlantedFaultShows) {
  struct Case {
    const char* fault;
    Placement layout;
    bool llama;
  };
  const std::vector<Case> cases = {
      {"tp_missing_reduce", {2, 1, false}, true},
      {"tp_missing_gradient_reduce", {2, 1, false}, true},
      {"wrong_kv_replica", {4, 1, false}, true},
      {"dropout_key_by_rank", {2, 1, false}, false},
      {"dropout_rows_by_rank", {2, 1, true}, false},
      {"row_bias_before_reduce", {2, 1, false}, false},
      {"loss_missing_reduce", {2, 1, false}, false},
      {"sp_gradient_not_partial", {2, 1, true}, false},
  };
  for (const Case& test : cases) {
    const config::ModelConfig config = with_dropout(test.llama ? llama_kind() : gpt2_kind());
    const Tensors one = run(config, {});
    EXPECT_LE(worst_difference(run(config, test.layout), one).first, 1e-12) << test.fault;
    set_planted_fault(test.fault);
    // A fault may show as different numbers or as copies that disagree.
    double off = 0.0;
    try {
      off = worst_difference(run(config, test.layout), one).first;
    } catch (const Error&) {
      off = 1.0;
    }
    set_planted_fault("");
    EXPECT_GT(off, 1e-6) << test.fault << " went unseen";
  }
}

}  // namespace
}  // namespace pentatron::models
