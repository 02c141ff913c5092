// SPDX-License-Identifier: Apache-2.0
// Faults that users of this field reported in public, of models on several ranks;
// docs/public_faults.md lists them all. Each is the report's layout against one process.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "pentatron/comm/faulty_backend.h"

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

// What every rank itself holds, after the steps, of the parts that it holds whole: values and
// gradients, by name.
using Copies = std::map<std::string, Tensor>;
std::vector<Copies> copies_after(const CaseOptions& options, const Layout& layout,
                                 const comm::testing_support::Fault& fault = {
                                     .group = "no such group"}) {
  std::vector<Copies> copies(static_cast<std::size_t>(layout.world_size()));
  comm::run_threads(
      {.world_size = layout.world_size(), .threads_per_rank = 1}, [&](comm::Backend& real) {
        comm::testing_support::FaultyBackend backend(real, fault);
        RankRun run(options, layout, backend);
        for (int step = 0; step < options.steps; ++step) run.train_step();
        Copies& mine = copies[static_cast<std::size_t>(backend.rank())];
        for (nn::Parameter* parameter : run.engine().stages().parameters()) {
          for (const nn::ShardPart& part : parameter->spec().parts) {
            if (part.box.size != part.logical_shape) continue;
            mine[part.name] = nn::part_view(parameter->data(), part).clone();
            mine["gradient of " + part.name] = nn::part_view(parameter->main_grad(), part).clone();
          }
        }
      });
  return copies;
}

// Name of a copy that is not the same bit for bit on two ranks; empty: all are.
std::string other_copy(const std::vector<Copies>& copies) {
  for (const Copies& others : copies) {
    if (others.size() != copies[0].size()) return "another number of copies";
    for (const auto& [name, values] : copies[0]) {
      if (!others.contains(name) || !values.equal(others.at(name))) return name;
    }
  }
  return {};
}

// Packed documents through stages that neither embed nor have the loss: these need the documents'
// boundaries too.
TEST(Cases, NeMoSpeech_14437) {
  expect_as_one_process(kLlama, {{.pp = 4}, {.pp = 4, .schedule = "zb-h1"}});
  expect_as_one_process(kGpt2, {{.pp = 3, .pipeline = "Et|tt|tL"}});
}

// A vocabulary of 61: padding rows stand on the last rank alone, or on none whole. With
// --make-vocab-size-divisible-by 1 one process has none, so that no padded logit may enter a sum.
TEST(Cases, MegatronLM_1754) {
  for (const std::int64_t divisible_by : {1, 8}) {
    CaseOptions gpt2 = kGpt2, llama = kLlama;
    gpt2.vocab_divisible_by = llama.vocab_divisible_by = divisible_by;
    expect_as_one_process(gpt2, {{.tp = 2}, {.tp = 4}});
    expect_as_one_process(llama, {{.tp = 2}, {.tp = 4, .sequence_parallel = true}});
    const Layout layout{.tp = 2};
    EXPECT_EQ(make_config(gpt2, {}).model.padded_vocab_size, divisible_by == 1 ? 61 : 64);
    EXPECT_EQ(make_config(gpt2, layout).model.padded_vocab_size, divisible_by == 1 ? 62 : 64);
  }
  // Where padding does take part, the losses are others.
  CaseOptions padded = kGpt2;
  padded.form = "padded-vocab";
  const std::vector<double> usual = run_case(kGpt2, {.tp = 2}).losses;
  const std::vector<double> with_padding = run_case(padded, {.tp = 2}).losses;
  ASSERT_EQ(usual.size(), with_padding.size());
  for (std::size_t step = 0; step < usual.size(); ++step) {
    EXPECT_GT(std::abs(usual[step] - with_padding[step]), 1e-4) << step;
  }
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
// partial sum on each rank, and the same sum on all once it is reduced.
TEST(Cases, MegatronLM_7452_ReplicatedNorm) {
  CaseOptions norms = kLlama;
  norms.attention = "qk-layernorm";
  expect_as_one_process(norms, {{.tp = 2}, {.tp = 4}});
  for (const std::int64_t tp : {2, 4}) {
    const std::vector<Copies> copies = copies_after(norms, {.tp = tp});
    EXPECT_EQ(other_copy(copies), "") << tp;
    EXPECT_TRUE(
        copies[0].contains("gradient of decoder.layers.0.self_attention.q_layernorm.weight"));
  }
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

// Replicated parameters under sequence parallelism, ten steps: the ranks' copies and their
// gradients are the same bits. Those whose partial sums are not reduced are not.
TEST(Cases, MegatronLM_1446) {
  using comm::testing_support::Collective;
  for (CaseOptions options : {kGpt2, kLlama}) {
    options.steps = 10;
    const Outcome one = run_case(options, Layout{.micro_batch_size = 8});
    for (const std::int64_t tp : {2, 4}) {
      const Layout split{.tp = tp, .sequence_parallel = true};
      EXPECT_EQ(difference(one, run_case(options, split), kExact, 1e-9), "") << tp;
      const std::vector<Copies> copies = copies_after(options, split);
      EXPECT_EQ(other_copy(copies), "") << tp;
      EXPECT_TRUE(copies[0].contains("decoder.final_layernorm.weight"));
      // Those of the loss have as many elements as a micro-batch has tokens, 16.
      const comm::testing_support::Fault partial{
          .collective = Collective::kAllReduce, .group = "/tp:", .least_elements = 100};
      EXPECT_NE(other_copy(copies_after(options, split, partial)), "") << tp;
    }
  }
}

// Updated parameters that are gathered while the next forward runs are the updated ones: in many
// buckets, which come in the order of backward, so that forward waits for the last one first.
TEST(Cases, MegatronLM_663) {
  for (const CaseOptions& options : {kGpt2, kLlama}) {
    const Layout plain{.dp = 2, .sharded_optimizer = true, .bucket_size = kSmallBuckets};
    Layout overlapped = plain;
    overlapped.overlap_gather = true;
    const Outcome of_plain = run_case(options, plain);
    EXPECT_GT(of_plain.num_buckets, 8U);
    EXPECT_EQ(difference(of_plain, run_case(options, overlapped), 0), "");
    EXPECT_LT(of_plain.losses.back(), of_plain.losses.front()) << "stuck";
  }
}

// Two copies of an optimizer that is sharded over two ranks each. Gradients that are reduced bucket
// by bucket beside backward have the bits of those that are reduced at once behind it; without
// clipping (the norm is a sum over other pieces) so have the weights. Nor does the overlapped
// gather change a bit.
TEST(Cases, MegatronLM_3693) {
  for (CaseOptions options : {kGpt2, kLlama}) {
    const Layout at_once{.dp = 4, .sharded_optimizer = true, .instances = 2};
    Layout overlapped = at_once;
    overlapped.bucket_size = kSmallBuckets;
    Layout both = overlapped;
    both.overlap_gather = true;
    expect_as_one_process(options, {at_once, overlapped, both});
    options.clip_grad = 0;
    const Outcome one = run_case(options, at_once), many = run_case(options, overlapped);
    EXPECT_LT(one.num_buckets, 3U);
    EXPECT_GT(many.num_buckets, 8U);
    EXPECT_EQ(one.losses, many.losses);
    for (const auto& [name, gradient] : one.first_gradients) {
      EXPECT_TRUE(gradient.equal(many.first_gradients.at(name))) << name;
      EXPECT_TRUE(one.weights.at(name).equal(many.weights.at(name))) << name;
    }
    EXPECT_EQ(difference(many, run_case(options, both), 0), "");
  }
}

// Which states the ranks of a layout keep of each part, and of how many elements.
std::map<std::string, std::map<std::string, std::int64_t>> owned_states(const CaseOptions& options,
                                                                        const Layout& layout) {
  std::map<std::string, std::map<std::string, std::int64_t>> states;
  std::mutex mutex;
  comm::run_threads({.world_size = layout.world_size(), .threads_per_rank = 1},
                    [&](comm::Backend& backend) {
                      RankRun run(options, layout, backend);
                      run.train_step();
                      const auto slices = run.engine().state_slices(/*owner_only=*/true);
                      const std::lock_guard lock(mutex);
                      for (const optimizer::StateSlice& slice : slices) {
                        states[slice.part->name][slice.kind] += slice.values.numel();
                      }
                    });
  return states;
}

// Embeddings that two stages share, under an optimizer of matrices: every parameter is updated by
// one rule, on one stage's account.
TEST(Cases, MegatronLM_4641) {
  CaseOptions muon = kGpt2;
  muon.optimizer = "muon";
  const Outcome one = run_case(muon, Layout{.micro_batch_size = 8});
  for (const Layout& layout :
       {Layout{.pp = 2}, Layout{.pp = 2, .dp = 2, .sharded_optimizer = true}}) {
    EXPECT_EQ(difference(one, run_case(muon, layout), kExact, 1e-8), "") << layout.name();
    const auto states = owned_states(muon, layout);
    EXPECT_EQ(states.size(), one.weights.size());
    std::size_t of_matrices = 0;
    for (const auto& [name, of_part] : states) {
      for (const auto& [kind, elements] : of_part) {
        EXPECT_EQ(elements, one.weights.at(name).numel()) << kind << " of " << name;
      }
      const bool adam = of_part.contains("exp_avg_sq");
      EXPECT_EQ(of_part.size(), adam ? 3U : 2U) << name << ": main parameters and one rule's state";
      EXPECT_TRUE(adam || name.find("word_embeddings") == std::string::npos) << name;
      of_matrices += adam ? 0 : 1;
    }
    EXPECT_EQ(of_matrices, 4U * 6 + 1)
        << "q, k, v, projection and two of the feed-forward a layer; the table of positions, as "
           "Megatron has it";
  }
}

// Layers of each pipeline rank.
std::vector<std::size_t> layers_of_ranks(const CaseOptions& options, const Layout& layout) {
  std::vector<std::size_t> layers(static_cast<std::size_t>(layout.pp));
  comm::run_threads({.world_size = layout.world_size(), .threads_per_rank = 1},
                    [&](comm::Backend& backend) {
                      RankRun run(options, layout, backend);
                      for (const nn::Unit& unit : run.engine().stages().units()) {
                        if (unit.name.find("layers.") == std::string::npos) continue;
                        ++layers[static_cast<std::size_t>(backend.rank())];
                      }
                    });
  return layers;
}

// Stages with other numbers of layers: they have these, and the loss of one process; numbers that
// do not add up to the layers are refused.
TEST(Cases, MegatronLM_381) {
  const std::vector<std::pair<const char*, std::vector<std::size_t>>> uneven = {
      {"Ettt|tL", {3, 1}}, {"Et|tttL", {1, 3}}, {"Et|tt|tL", {1, 2, 1}}};
  for (const auto& [pipeline, layers] : uneven) {
    const Layout layout{.pp = static_cast<std::int64_t>(layers.size()), .pipeline = pipeline};
    expect_as_one_process(kGpt2, {layout});
    EXPECT_EQ(layers_of_ranks(kGpt2, layout), layers) << pipeline;
  }
  for (const char* wrong : {"Ett|tL", "Ettt|ttL"}) {
    const std::string refusal = refusal_of(kGpt2, {.pp = 2, .pipeline = wrong});
    EXPECT_NE(refusal.find(" decoder layers"), std::string::npos) << refusal;
    EXPECT_NE(refusal.find("--num-layers is 4"), std::string::npos) << refusal;
  }
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
