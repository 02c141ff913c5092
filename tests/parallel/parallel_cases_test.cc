// SPDX-License-Identifier: Apache-2.0
// Faults that users of this field reported in public, of models on several ranks;
// docs/public_faults.md lists them all. Each is the report's layout against one process.
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "tests/parallel/parity_case.h"
#include "tests/parallel/sweep_layouts.h"

namespace pentatron::parity {
namespace {

constexpr double kExact = 1e-11;  // fp64; sums in another order

const CaseOptions kGpt2{.model = ModelKind::kGpt2};
const CaseOptions kLlama{.model = ModelKind::kLlama};

void expect_as_one_process(const CaseOptions& options, const std::vector<Layout>& layouts) {
  const Outcome one = run_case(options, Layout{.micro_batch_size = 8});
  for (const Layout& layout : layouts) {
    EXPECT_EQ(difference(one, run_case(options, layout), kExact), "") << layout.name();
  }
}

// Packed documents through stages that neither embed nor have the loss: these need the documents'
// boundaries too.
TEST(Cases, NeMoSpeech_14437) {
  expect_as_one_process(kLlama, {{.pp = 4}, {.pp = 4, .schedule = "zb-h1"}});
  expect_as_one_process(kGpt2, {{.pp = 3, .pipeline = "Et|tt|tL"}});
}

// A vocabulary of 61: padding rows stand on the last rank alone, or on none whole.
TEST(Cases, MegatronLM_1754) {
  expect_as_one_process(kGpt2, {{.tp = 2}, {.tp = 4}});
  expect_as_one_process(kLlama, {{.tp = 4, .sequence_parallel = true}});
}

// All pairs of the five ways to share a model, three steps, uneven masks. (parity_sweep has all
// values of ten axes and every kind of model.)
TEST(Cases, MegatronLM_7452_Pairs) {
  const std::set<std::string> pairs = {"TP2_PP2", "TP2_DP2",     "TP2_CP2ring",
                                       "PP2_DP2", "PP2_CP2ring", "DP2_CP2ring",
                                       "PP2_SP",  "DP2_SP",      "CP2ring_SP"};
  std::size_t ran = 0;
  for (const NamedLayout& pair : pair_layouts()) {
    if (!pairs.contains(pair.name)) continue;
    ++ran;
    for (const CaseOptions& options : {kGpt2, kLlama}) {
      expect_as_one_process(options, {pair.layout});
    }
  }
  EXPECT_EQ(ran, pairs.size());
}

// Smoothed labels: the mean of the logits is that of all ranks' true columns.
TEST(Cases, MegatronLM_7452_LabelSmoothing) {
  for (CaseOptions options : {kGpt2, kLlama}) {
    options.form = "smoothed-labels";
    expect_as_one_process(options, {{.tp = 2}, {.tp = 4}, {.tp = 2, .sequence_parallel = true}});
  }
}

// Recomputation under tensor parallelism: bit for bit the gradients without it.
TEST(Cases, MegatronLM_7452_Recompute) {
  for (const char* recompute : {"uniform 1", "core_attn mlp"}) {
    for (const bool sequence : {false, true}) {
      const Layout plain{.tp = 2, .sequence_parallel = sequence};
      Layout again = plain;
      again.recompute = recompute;
      EXPECT_EQ(difference(run_case(kGpt2, plain), run_case(kGpt2, again), 0), "") << again.name();
    }
  }
}

// Learnable sinks are split over the heads of tensor-parallel ranks: each counts once in the norm.
TEST(Cases, MegatronLM_7452_Sinks) {
  CaseOptions sinks = kLlama;
  sinks.attention = "sinks";
  expect_as_one_process(sinks, {{.tp = 2}, {.tp = 2, .sequence_parallel = true}});
}

// A replicated norm inside of split attention, without sequence parallelism: its gradient is a
// partial sum on each rank.
TEST(Cases, MegatronLM_7452_ReplicatedNorm) {
  CaseOptions norms = kLlama;
  norms.attention = "qk-layernorm";
  expect_as_one_process(norms, {{.tp = 2}, {.tp = 4}});
}

// Replicated weights count once in the norm of gradients.
TEST(Cases, TransformerEngine_715) {
  expect_as_one_process(kGpt2, {{.tp = 4}, {.tp = 4, .sequence_parallel = true}});
}

// Gradients are not scaled by the number of micro-batches, nor the loss by that of stages.
TEST(Cases, Torchtitan_1733) {
  expect_as_one_process(kGpt2, {{.pp = 2, .micro_batch_size = 2},
                                {.pp = 2, .micro_batch_size = 1},
                                {.pp = 2, .dp = 2, .micro_batch_size = 1}});
}

// Replicated parameters under sequence parallelism, ten steps.
TEST(Cases, MegatronLM_1446) {
  for (CaseOptions options : {kGpt2, kLlama}) {
    options.steps = 10;
    const Outcome one = run_case(options, Layout{.micro_batch_size = 8});
    const Outcome split = run_case(options, {.tp = 2, .sequence_parallel = true});
    EXPECT_EQ(difference(one, split, kExact, 1e-9), "");
  }
}

// Updated parameters that are gathered while the next forward runs are the updated ones.
TEST(Cases, MegatronLM_663) {
  for (const CaseOptions& options : {kGpt2, kLlama}) {
    const Layout plain{.dp = 2, .sharded_optimizer = true};
    Layout overlapped = plain;
    overlapped.overlap_gather = true;
    EXPECT_EQ(difference(run_case(options, plain), run_case(options, overlapped), 0), "");
  }
}

// Two copies of an optimizer that is sharded over two ranks each.
TEST(Cases, MegatronLM_3693) {
  expect_as_one_process(kGpt2, {{.dp = 4, .sharded_optimizer = true, .instances = 2}});
  const Layout plain{.dp = 4, .sharded_optimizer = true, .instances = 2};
  Layout overlapped = plain;
  overlapped.overlap_gather = true;
  EXPECT_EQ(difference(run_case(kGpt2, plain), run_case(kGpt2, overlapped), 0), "");
}

// Embeddings that two stages share, under an optimizer of matrices.
TEST(Cases, MegatronLM_4641) {
  CaseOptions muon = kGpt2;
  muon.optimizer = "muon";
  const Outcome one = run_case(muon, Layout{.micro_batch_size = 8});
  EXPECT_EQ(difference(one, run_case(muon, {.pp = 2}), kExact, 1e-8), "");
}

// Stages with other numbers of layers.
TEST(Cases, MegatronLM_381) {
  expect_as_one_process(kGpt2,
                        {{.pp = 2, .pipeline = "Ettt|tL"}, {.pp = 2, .pipeline = "Et|tttL"}});
}

// Grouped queries on stages: two groups for four heads.
TEST(Cases, MegatronLM_750) {
  expect_as_one_process(kLlama, {{.pp = 2}, {.tp = 2, .pp = 2}, {.tp = 4, .pp = 2}});
}

// Evaluation with fewer micro-batches than stages, over virtual stages.
TEST(Cases, MegatronLM_5022) {
  const auto evaluated = [](const Layout& layout) {
    double loss = 0;
    std::mutex mutex;
    comm::run_threads({.world_size = layout.world_size(), .threads_per_rank = 1},
                      [&](comm::Backend& backend) {
                        CaseOptions options = kGpt2;
                        options.steps = 1;
                        RankRun run(options, layout, backend);
                        const double mine = run.evaluate(1);
                        const std::lock_guard lock(mutex);
                        if (backend.rank() == 0) loss = mine;
                      });
    return loss;
  };
  const double one = evaluated({});
  EXPECT_GT(one, 1.0);
  for (const Layout& layout : {Layout{.pp = 2, .chunks = 2}, Layout{.pp = 4}}) {
    EXPECT_NEAR(evaluated(layout), one, 1e-12 * one) << layout.name();
  }
}

}  // namespace
}  // namespace pentatron::parity
