// SPDX-License-Identifier: Apache-2.0
// Whole models on tensor-parallel ranks and pipeline stages against one process, fp64, with
// dropout, two documents in a row and an uneven mask; and each collective is needed.
#include <gtest/gtest.h>

#include <atomic>

#include "pentatron/base/error.h"
#include "pentatron/models/model_test_support.h"
#include "pentatron/parallel_layers/watched_group_test_support.h"

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
  const Batch batch = make_batch({{7, 5}, {12}}, config.vocab_size);
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

TEST(GptParallel, FormsOfTheLayerGiveTheSameInEveryLayout) {
  std::vector<config::ModelConfig> configs(4, with_dropout(llama_kind()));
  configs[0].norm_placement = "post";
  configs[1].norm_placement = "both";
  configs[2].parallel_attention = "shared-norm";
  configs[3].qk_layernorm = true;
  configs[3].qk_norm_scope = "all-heads";
  for (const config::ModelConfig& config : configs) {
    const Tensors one = run(config, {});
    for (const Placement& layout :
         {Placement{2, 1, false}, Placement{4, 1, true}, Placement{2, 2, true}}) {
      const auto [off, name] = worst_difference(run(config, layout), one);
      EXPECT_LE(off, 1e-12) << name << ": tp " << layout.tensor_size << " pp "
                            << layout.pipeline_size << " sp " << layout.sequence_parallel;
    }
  }
}

TEST(GptParallel, DropoutAndSeedMatter) {
  const Tensors with = run(with_dropout(gpt2_kind()), {});
  const Tensors without = run(gpt2_kind(), {});
  EXPECT_GT(difference(with.at("loss"), without.at("loss")), 1e-6);
}

// Without any one collective of the tensor-parallel ranks, numbers differ or copies disagree.
TEST(GptParallel, NoCollectiveCanBeLeftOut) {
  for (const bool sequence_parallel : {false, true}) {
    const config::ModelConfig config = with_dropout(sequence_parallel ? gpt2_kind() : llama_kind());
    const Tensors weights = random_weights(config);
    const Batch batch = make_batch({{7, 5}, {12}}, config.vocab_size);
    std::atomic<int> count{0};
    const auto run_without = [&](int left_out) {
      Gathered out;
      run_watched({2, sequence_parallel}, precision_policy("fp64"),
                  [&](const parallel_layers::LeafContext& context, GroupWatch& watch) {
                    watch.leave_out = [&](int number) { return number == left_out; };
                    run_model(config, context, 1, weights, batch, out);
                    count = watch.count;
                  });
      return out.tensors();
    };
    const Tensors one = run_without(-1);
    EXPECT_GE(count, 2 * 4 + 4);
    for (int number = 0, end = count; number < end; ++number) {
      double off = 0.0;
      try {
        off = worst_difference(run_without(number), one).first;
      } catch (const Error&) {
        off = 1.0;
      }
      EXPECT_GT(off, 1e-6) << "collective " << number << " of " << end << ", sequence parallel "
                           << sequence_parallel;
    }
  }
}

}  // namespace
}  // namespace pentatron::models
