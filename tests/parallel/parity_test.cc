// SPDX-License-Identifier: Apache-2.0
// One loss: every layout equals one process in fp64. parity_test takes the layouts of the proof,
// parity_sweep all that the axes give.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>

#include "pentatron/comm/backend.h"
#include "tests/parallel/parity_case.h"

namespace pentatron::parity {
namespace {

// Loss, norm, gradients and the weights after the first step.
constexpr double kTolerance = 1e-12;
// After several steps rounding differences have gone through Adam's quotient (eps 1e-3).
constexpr double kTrainedTolerance = 1e-11;

const Outcome& reference_of(const CaseOptions& options) {
  static std::map<std::string, Outcome> cache;
  const std::string key = options.optimizer + (options.model == ModelKind::kGpt2 ? "g" : "l") +
                          std::to_string(options.num_query_groups) +
                          (options.mixed_layers ? "m" : "") + options.attention + options.form +
                          fmt::format("{}", options.freeze) +
                          fmt::format(" lora {} {} {} {}", options.lora_rank, options.lora_dropout,
                                      options.lora_dora, options.lora_modules);
  auto found = cache.find(key);
  if (found == cache.end())
    found = cache.emplace(key, run_case(options, Layout{.micro_batch_size = 8})).first;
  return found->second;
}

void expect_equal(const CaseOptions& options, const Layout& layout) {
  const Outcome& reference = reference_of(options);
  EXPECT_EQ(difference(reference, run_case(options, layout), kTolerance, kTrainedTolerance), "")
      << layout.name();
}

std::vector<Layout> proof_layouts() {
  return {{.tp = 2},
          {.tp = 2, .sequence_parallel = true},
          {.pp = 2},
          {.dp = 2},
          {.dp = 2, .sharded_optimizer = true},
          {.tp = 2, .pp = 2},
          {.tp = 2, .dp = 2},
          {.tp = 2, .sequence_parallel = true, .pp = 2, .dp = 2, .sharded_optimizer = true}};
}

TEST(Parity, Gpt2WithAdam) {
  for (const Layout& layout : proof_layouts()) expect_equal({.model = ModelKind::kGpt2}, layout);
}

TEST(Parity, LlamaWithAdam) {
  for (const Layout& layout : proof_layouts()) expect_equal({.model = ModelKind::kLlama}, layout);
}

TEST(Parity, BothWithSgd) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    expect_equal({.model = model, .optimizer = "sgd"}, {.tp = 2, .pp = 2});
    expect_equal({.model = model, .optimizer = "sgd"}, {.dp = 2, .sharded_optimizer = true});
  }
}

TEST(Parity, FewerKvHeadsThanTensorRanks) {
  expect_equal({.model = ModelKind::kLlama, .num_query_groups = 2}, {.tp = 4});
  expect_equal({.model = ModelKind::kLlama, .num_query_groups = 1}, {.tp = 2});
  expect_equal({.model = ModelKind::kLlama, .num_query_groups = 1},
               {.tp = 4, .sequence_parallel = true});
}

TEST(Parity, MicroBatchSizeDoesNotChangeTheLoss) {
  for (const std::int64_t size : {1, 2, 4}) {
    expect_equal({.model = ModelKind::kGpt2}, {.micro_batch_size = size});
    expect_equal({.model = ModelKind::kLlama}, {.pp = 2, .micro_batch_size = size});
  }
}

// Tied (GPT-2) and untied embeddings; two micro-batches on four ranks; uneven stages; little
// memory.
TEST(Parity, EverySchedule) {
  for (const char* schedule : {"gpipe", "zb-h1", "zb-auto"}) {
    const CaseOptions gpt2{.model = ModelKind::kGpt2};
    expect_equal(gpt2, {.pp = 2, .schedule = schedule});
    expect_equal(gpt2, {.pp = 4, .micro_batch_size = 4, .schedule = schedule});
    expect_equal(gpt2, {.pp = 2, .schedule = schedule, .pipeline = "Ettt|tL"});
    expect_equal(gpt2, {.pp = 2, .dp = 2, .sharded_optimizer = true, .schedule = schedule});
    const CaseOptions llama{.model = ModelKind::kLlama};
    expect_equal(llama, {.tp = 2, .pp = 2, .schedule = schedule});
    expect_equal(llama, {.tp = 2, .sequence_parallel = true, .pp = 4, .schedule = schedule});
    expect_equal(llama, {.pp = 4, .schedule = schedule, .pipeline = "E|ttt|t|L"});
  }
  for (const std::int64_t limit : {1, 2, 7}) {
    expect_equal({.model = ModelKind::kGpt2},
                 {.pp = 4, .schedule = "zb-auto", .max_in_flight = limit});
  }
  expect_equal({.model = ModelKind::kGpt2}, {.pp = 2, .schedule = "gpipe", .chunks = 2});
  expect_equal({.model = ModelKind::kLlama},
               {.pp = 2, .micro_batch_size = 8, .schedule = "gpipe", .chunks = 2});
}

TEST(Parity, SeveralStagesARank) {
  expect_equal({.model = ModelKind::kGpt2}, {.pp = 2, .chunks = 2});
  expect_equal({.model = ModelKind::kLlama}, {.tp = 2, .pp = 2, .chunks = 2});
  expect_equal({.model = ModelKind::kGpt2},
               {.pp = 2, .dp = 2, .sharded_optimizer = true, .chunks = 2});
  expect_equal({.model = ModelKind::kGpt2}, {.tp = 2,
                                             .sequence_parallel = true,
                                             .pp = 2,
                                             .dp = 2,
                                             .sharded_optimizer = true,
                                             .micro_batch_size = 2,
                                             .chunks = 2});
}

TEST(Parity, UnevenStages) {
  expect_equal({.model = ModelKind::kGpt2}, {.pp = 2, .pipeline = "Ettt|tL"});
  expect_equal({.model = ModelKind::kLlama}, {.pp = 2, .pipeline = "E|ttttL"});
  // Stages without layers, the loss by itself, two stages a rank.
  expect_equal({.model = ModelKind::kGpt2}, {.tp = 2, .pp = 2, .pipeline = "E|tt|tt|L"});
  expect_equal({.model = ModelKind::kLlama}, {.pp = 2, .dp = 2, .pipeline = "Ett||tt|L"});
}

// One model, two kinds of mlp of two widths, in every layout.
TEST(Parity, LayersOfTwoKinds) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions mixed{.model = model, .mixed_layers = true};
    for (const Layout& layout : proof_layouts()) expect_equal(mixed, layout);
    expect_equal(mixed, {.pp = 2, .chunks = 2});
    expect_equal(mixed, {.tp = 2, .pp = 2, .pipeline = "Ettt|tL"});
    EXPECT_NE(difference(reference_of({.model = model}), reference_of(mixed), kTolerance), "");
  }
}

// Weights that all heads of all ranks share, slopes and sinks that differ from head to head,
// windows of some layers.
TEST(Parity, FurtherFormsOfAttention) {
  for (const char* attention :
       {"qk-layernorm", "qk-l2-norm", "alibi", "relative", "windows", "sinks", "gate"}) {
    for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
      const CaseOptions options{.model = model, .attention = attention};
      for (const Layout& layout : proof_layouts()) expect_equal(options, layout);
      EXPECT_NE(difference(reference_of({.model = model}), reference_of(options), kTolerance), "");
    }
    // Copies of key heads see only their ranks' share of the gradient.
    expect_equal({.model = ModelKind::kLlama, .num_query_groups = 1, .attention = attention},
                 {.tp = 4, .sequence_parallel = true});
  }
}

// One table of biases on every stage, used by layers outside the unit that owns it.
TEST(Parity, RelativePositionsOnManyStages) {
  const CaseOptions options{.model = ModelKind::kGpt2, .attention = "relative"};
  expect_equal(options, {.pp = 4});
  expect_equal(options, {.tp = 2, .pp = 2, .pipeline = "Etttt|L"});
  expect_equal(options, {.pp = 4, .schedule = "zb-h1"});
  for (const char* strategy : {"optim", "optim_grads", "optim_grads_params"}) {
    expect_equal(options, {.dp = 2, .strategy = strategy});
    expect_equal(options, {.tp = 2, .pp = 2, .dp = 2, .strategy = strategy});
  }
  expect_equal(options, {.dp = 2, .recompute = "uniform 2", .strategy = "optim_grads_params"});
  CaseOptions muon = options;
  muon.optimizer = "muon";
  expect_equal(muon, {.tp = 2, .pp = 2});
}

// Sinks have a weight inside what is recomputed.
TEST(Parity, RecomputeWithFurtherFormsOfAttention) {
  for (const char* attention : {"windows", "sinks", "gate", "relative"}) {
    const CaseOptions options{.model = ModelKind::kGpt2, .attention = attention};
    for (const char* recompute : {"uniform 1", "core_attn"}) {
      expect_equal(options, {.recompute = recompute});
      expect_equal(options, {.tp = 2, .pp = 2, .schedule = "zb-h1", .recompute = recompute});
    }
  }
}

// Norms elsewhere, layers whose halves stand side by side.
TEST(Parity, FormsOfTheLayer) {
  for (const auto& [form, model] : {std::pair{"post", ModelKind::kLlama},
                                    {"both", ModelKind::kGpt2},
                                    {"gemma", ModelKind::kLlama},
                                    {"shared-norm", ModelKind::kGpt2},
                                    {"own-norms", ModelKind::kLlama},
                                    {"heterogeneous", ModelKind::kLlama},
                                    {"heterogeneous", ModelKind::kGpt2},
                                    {"residual-after-norm", ModelKind::kGpt2}}) {
    const CaseOptions options{.model = model, .form = form};
    for (const Layout& layout : proof_layouts()) expect_equal(options, layout);
    EXPECT_NE(difference(reference_of({.model = model}), reference_of(options), kTolerance), "");
    Layout layout{.tp = 2, .sequence_parallel = true};
    const Outcome kept = run_case(options, layout);
    for (const char* recompute : {"uniform 1", "core_attn mlp"}) {
      layout.recompute = recompute;
      EXPECT_EQ(difference(kept, run_case(options, layout), 0.0), "") << form << " " << recompute;
    }
  }
}

// One norm over heads that stand on several ranks; copies of key heads count once.
TEST(Parity, NormOverAllHeads) {
  for (const std::int64_t groups : {1, 2, 4}) {
    const CaseOptions options{
        .model = ModelKind::kLlama, .num_query_groups = groups, .attention = "qk-all-heads"};
    for (const Layout& layout : proof_layouts()) expect_equal(options, layout);
    expect_equal(options, {.tp = 4});
    expect_equal(options, {.tp = 4, .sequence_parallel = true});
    expect_equal(options, {.tp = 2, .cp = 2});
  }
  const CaseOptions all{.model = ModelKind::kLlama, .attention = "qk-all-heads"};
  const CaseOptions each{.model = ModelKind::kLlama, .attention = "qk-layernorm"};
  EXPECT_NE(reference_of(each).losses, reference_of(all).losses);
  Layout layout{.tp = 2, .sequence_parallel = true};
  const Outcome kept = run_case(all, layout);
  layout.recompute = "uniform 1";
  EXPECT_EQ(difference(kept, run_case(all, layout), 0.0), "");
}

// Heads' largest logits are of all ranks and micro-batches; shards begin and end inside rows; key
// heads that several ranks hold are scaled alike.
TEST(Parity, QkClip) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options{.model = model, .attention = "qk-clip"};
    EXPECT_NE(difference(reference_of({.model = model}), reference_of(options), kTolerance), "");
    for (const Layout& layout : proof_layouts()) expect_equal(options, layout);
    expect_equal(options, {.dp = 4, .sharded_optimizer = true});
    expect_equal(options, {.dp = 2, .strategy = "optim_grads_params"});
    expect_equal(options, {.pp = 2, .chunks = 2});
    expect_equal(options, {.pp = 2, .schedule = "zb-h1"});
    expect_equal(options, {.dp = 2, .sharded_optimizer = true, .state_on_host = true});
    for (const char* comm : {"p2p", "all_gather", "a2a"}) {
      expect_equal(options, {.cp = 2, .cp_comm = comm});
    }
    expect_equal(options, {.cp = 4, .cp_comm = "a2a+p2p", .cp_inner = 2});
    for (const char* recompute : {"uniform 2", "core_attn"}) {
      expect_equal(options, {.tp = 2, .recompute = recompute});
    }
  }
  for (const std::int64_t groups : {1, 2, 4}) {
    const CaseOptions options{
        .model = ModelKind::kLlama, .num_query_groups = groups, .attention = "qk-clip"};
    expect_equal(options, {.tp = 4, .sequence_parallel = true});
  }
  // Layers of other numbers of groups, and some without attention.
  const CaseOptions unlike{
      .model = ModelKind::kLlama, .form = "heterogeneous", .attention = "qk-clip"};
  expect_equal(unlike, {.tp = 2, .pp = 2});
}

// Recomputing changes no bit of a layout's own outcome.
TEST(Parity, RecomputeIsEqualToTheBit) {
  const std::vector<Layout> layouts = {
      {},
      {.tp = 2},
      {.tp = 2, .sequence_parallel = true},
      {.pp = 2},
      {.pp = 2, .schedule = "zb-h1"},
      {.dp = 2, .sharded_optimizer = true},
      {.pp = 2, .chunks = 2},
      {.cp = 2},
      {.tp = 2, .sequence_parallel = true, .pp = 2, .dp = 2, .sharded_optimizer = true}};
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options{.model = model, .precision = "fp32", .steps = 2};
    for (Layout layout : layouts) {
      const Outcome kept = run_case(options, layout);
      for (const char* recompute :
           {"uniform 1", "uniform 3", "block 1", "core_attn", "core_attn mlp"}) {
        layout.recompute = recompute;
        EXPECT_EQ(difference(kept, run_case(options, layout), 0.0), "") << layout.name();
      }
    }
  }
}

// A sample's tokens are shared by ranks; documents go over the borders of their chunks.
TEST(Parity, ContextParallel) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options{.model = model};
    for (const char* comm : {"p2p", "all_gather", "a2a"}) {
      expect_equal(options, {.cp = 2, .cp_comm = comm});
      expect_equal(options, {.micro_batch_size = 4, .cp = 2, .cp_comm = comm});
      expect_equal(options, {.tp = 2,
                             .sequence_parallel = true,
                             .cp = 2,
                             .cp_comm = model == ModelKind::kGpt2 ? comm : "p2p"});
      expect_equal(options, {.dp = 2, .sharded_optimizer = true, .cp = 2, .cp_comm = comm});
      for (const char* recompute : {"uniform 1", "core_attn", "core_attn mlp"}) {
        expect_equal(options, {.recompute = recompute, .cp = 2, .cp_comm = comm});
      }
    }
    expect_equal(options, {.cp = 4});
    expect_equal(options, {.cp = 4, .cp_comm = "all_gather"});
    expect_equal(options, {.cp = 4, .cp_comm = "a2a+p2p", .cp_inner = 2});
    expect_equal(options, {.cp = 2, .cp_comm = "p2p all_gather a2a p2p"});
    expect_equal(options, {.tp = 2, .cp = 2});
    expect_equal(options, {.pp = 2, .cp = 2});
    expect_equal(options, {.pp = 2, .schedule = "zb-h1", .cp = 2});
    expect_equal(options, {.pp = 2, .chunks = 2, .cp = 2});
    expect_equal(options, {.dp = 2, .cp = 2});
    expect_equal(options, {.dp = 2, .strategy = "optim_grads_params", .cp = 2});
    expect_equal(options, {.strategy = "optim_grads_params", .cp = 2});
    expect_equal(options, {.dp = 2, .sharded_optimizer = true, .instances = 2, .cp = 2});
  }
  // Distances, windows and norms of heads are those of whole samples; a sink's gradient is summed
  // over all shares.
  for (const char* attention : {"qk-layernorm", "alibi", "relative", "windows", "sinks", "gate"}) {
    CaseOptions options{.model = ModelKind::kLlama};
    options.attention = attention;
    for (const char* comm : {"p2p", "all_gather", "a2a"}) {
      expect_equal(options, {.cp = 2, .cp_comm = comm});
    }
    expect_equal(options, {.cp = 4});
    expect_equal(options, {.tp = 2, .sequence_parallel = true, .cp = 2});
  }
  for (const char* attention : {"windows", "sinks"}) {
    const CaseOptions options{.model = ModelKind::kGpt2, .attention = attention};  // dropout
    expect_equal(options, {.cp = 4});
    expect_equal(options, {.cp = 4, .cp_comm = "all_gather"});
    expect_equal(options, {.cp = 4, .cp_comm = "a2a"});
    expect_equal(options, {.cp = 4, .cp_comm = "a2a+p2p", .cp_inner = 2});
    expect_equal(options, {.pp = 2, .schedule = "zb-h1", .recompute = "core_attn", .cp = 2});
  }
  expect_equal({.model = ModelKind::kLlama, .num_query_groups = 1}, {.cp = 4});
  expect_equal({.model = ModelKind::kGpt2},
               {.tp = 2, .sequence_parallel = true, .pp = 2, .sharded_optimizer = true, .cp = 2});
}

// What is sharded beside the optimizer's state: gradients, reduced in every micro-batch, and
// parameters, gathered unit by unit.
TEST(Parity, ShardedGradientsAndParameters) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const char* strategy : {"optim", "optim_grads", "optim_grads_params"}) {
      expect_equal({.model = model}, {.dp = 2, .strategy = strategy});
      expect_equal({.model = model},
                   {.tp = 2, .sequence_parallel = true, .pp = 2, .dp = 2, .strategy = strategy});
    }
    expect_equal({.model = model},
                 {.pp = 2, .dp = 2, .schedule = "zb-h1", .strategy = "optim_grads_params"});
    expect_equal({.model = model, .optimizer = "sgd"}, {.dp = 4, .strategy = "optim_grads_params"});
  }
}

// Shards over neighbours, equal copies over the rest.
TEST(Parity, TwoLevelSharding) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const char* strategy : {"optim", "optim_grads", "optim_grads_params"}) {
      expect_equal({.model = model}, {.dp = 4, .strategy = strategy, .instances = 2});
    }
    expect_equal({.model = model},
                 {.tp = 2, .dp = 4, .strategy = "optim_grads_params", .instances = 2});
  }
}

TEST(Parity, OverlappedGatherAndStateOnTheHost) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    expect_equal({.model = model},
                 {.pp = 2, .dp = 2, .sharded_optimizer = true, .overlap_gather = true});
    expect_equal({.model = model}, {.dp = 2, .strategy = "optim_grads", .overlap_gather = true});
    expect_equal({.model = model}, {.state_on_host = true});
    expect_equal({.model = model},
                 {.tp = 2, .dp = 2, .sharded_optimizer = true, .state_on_host = true});
  }
}

// Whole matrices are dealt to the ranks, and cut ones gathered before they are orthogonalised.
TEST(Parity, Muon) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions muon{.model = model, .optimizer = "muon"};
    for (const Layout& layout : proof_layouts()) expect_equal(muon, layout);
    expect_equal(muon, {.dp = 2, .strategy = "optim_grads_params"});
    expect_equal(muon, {.tp = 2, .dp = 2, .state_on_host = true});
  }
}

// Four times as wide as the base: rates and eps by class, scales, multipliers.
TEST(Parity, Mup) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const char* optimizer : {"adam", "sgd", "muon"}) {
      const CaseOptions options{.model = model, .optimizer = optimizer, .form = "mup"};
      for (const Layout& layout : proof_layouts()) expect_equal(options, layout);
      expect_equal(options, {.dp = 2, .strategy = "optim_grads_params"});
      expect_equal(options, {.tp = 2, .dp = 2, .sharded_optimizer = true, .state_on_host = true});
      EXPECT_NE(difference(reference_of({.model = model, .optimizer = optimizer}),
                           reference_of(options), kTolerance),
                "");
    }
    const CaseOptions adam{.model = model, .form = "mup"};
    expect_equal(adam, {.pp = 2, .schedule = "zb-h1", .recompute = "core_attn"});
    expect_equal(adam, {.tp = 2, .cp = 2});
  }
}

// Whole units, and a whole stage of two, without a trained weight; some weights of each layer; the
// tied embedding. Frozen weights keep every bit; the others' gradients are those of a model that
// trains everything, so the norm is theirs alone.
TEST(Parity, FrozenWeights) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const std::vector<std::string>& freeze :
         {std::vector<std::string>{"embedding.*", "decoder.layers.0.*", "decoder.layers.1.*"},
          {"*.linear_fc1.*", "*.linear_qkv.*", "*.layers.3.*norm*"}}) {
      CaseOptions options{.model = model, .freeze = freeze};
      for (const Layout& layout : proof_layouts()) expect_equal(options, layout);
      for (const char* strategy : {"optim_grads", "optim_grads_params"}) {
        expect_equal(options, {.dp = 2, .strategy = strategy});
        expect_equal(options, {.tp = 2, .pp = 2, .dp = 2, .strategy = strategy});
      }
      expect_equal(options, {.pp = 2, .schedule = "zb-h1", .recompute = "core_attn"});
      expect_equal(options, {.pp = 2, .chunks = 2, .recompute = "uniform 1"});
      expect_equal(options, {.tp = 2, .cp = 2});
      expect_equal(options, {.dp = 2, .sharded_optimizer = true, .state_on_host = true});
      const Outcome& frozen = reference_of(options);
      const Outcome& whole = reference_of({.model = model});
      double squares = 0;
      int kept = 0;
      for (const auto& [name, gradient] : frozen.first_gradients) {
        if (gradient.abs().max().item<double>() == 0) {
          EXPECT_TRUE(frozen.weights.at(name).equal(frozen.first_weights.at(name))) << name;
          ++kept;
          continue;
        }
        EXPECT_TRUE(gradient.equal(whole.first_gradients.at(name))) << name;
        squares += gradient.square().sum().item<double>();
      }
      EXPECT_GT(kept, 4);
      EXPECT_NEAR(frozen.first_norm, std::sqrt(squares), 1e-12 * frozen.first_norm);
      EXPECT_LT(frozen.first_norm, whole.first_norm);
      options.optimizer = "muon";
      expect_equal(options, {.tp = 2, .pp = 2, .dp = 2, .sharded_optimizer = true});
    }
  }
}

// Frozen weights with adapters on the parts of every linear layer, or of some; whole stages of
// which only those are trained.
TEST(Parity, LowRankAdapters) {
  for (const bool dora : {false, true}) {
    for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
      CaseOptions options{.model = model, .lora_rank = 3, .lora_dropout = 0.2, .lora_dora = dora};
      for (const Layout& layout : proof_layouts()) expect_equal(options, layout);
      for (const char* strategy : {"optim_grads", "optim_grads_params"}) {
        expect_equal(options, {.tp = 2, .dp = 2, .strategy = strategy});
      }
      expect_equal(options, {.pp = 2, .schedule = "zb-h1", .recompute = "core_attn mlp"});
      expect_equal(options, {.tp = 2, .sequence_parallel = true, .pp = 2, .schedule = "zb-h1"});
      expect_equal(options, {.tp = 2, .pp = 2, .chunks = 2, .recompute = "uniform 1"});
      expect_equal(options, {.tp = 2, .cp = 2});
      expect_equal(options, {.dp = 2, .sharded_optimizer = true, .state_on_host = true});
      const Outcome& tuned = reference_of(options);
      int kept = 0, trained = 0;
      for (const auto& [name, gradient] : tuned.first_gradients) {
        const bool adapter = name.find(".lora_") != std::string::npos;
        (adapter ? trained : kept) += 1;
        EXPECT_EQ(gradient.abs().max().item<double>() > 0, adapter) << name;
        EXPECT_EQ(tuned.weights.at(name).equal(tuned.first_weights.at(name)), !adapter) << name;
      }
      EXPECT_GT(kept, 10);
      EXPECT_EQ(trained, 4 * (model == ModelKind::kLlama ? 7 : 6) * (dora ? 3 : 2));
      CaseOptions other = options;
      other.lora_dropout = 0;
      EXPECT_NE(difference(reference_of(other), tuned, kTolerance), "");
      options.optimizer = "muon";
      expect_equal(options, {.tp = 2, .pp = 2, .dp = 2, .sharded_optimizer = true});
    }
    // Copies of key heads; parts of a weight without adapters beside others.
    const CaseOptions some{.model = ModelKind::kLlama,
                           .num_query_groups = 1,
                           .lora_rank = 2,
                           .lora_dora = dora,
                           .lora_modules = {"k", "v", "up", "down"}};
    expect_equal(some, {.tp = 4});
    expect_equal(some, {.tp = 4, .sequence_parallel = true});
  }
}

// Promise: no globals. Two models on different grids of one world take turns in every rank's
// thread.
TEST(Parity, TwoGridsInOneProcess) {
  const CaseOptions gpt2{.model = ModelKind::kGpt2};
  const CaseOptions llama{.model = ModelKind::kLlama};
  const Layout sharded{.tp = 2, .dp = 2, .sharded_optimizer = true};
  const Layout staged{.tp = 2, .sequence_parallel = true, .pp = 2};
  std::vector<std::string> differences(4);
  const Outcome& gpt2_alone = reference_of(gpt2);
  const Outcome& llama_alone = reference_of(llama);
  comm::run_threads({.world_size = 4, .threads_per_rank = 1}, [&](comm::Backend& backend) {
    RankRun first(gpt2, sharded, backend, "first");
    RankRun second(llama, staged, backend, "second");
    for (int step = 0; step < gpt2.steps; ++step) {
      first.train_step();
      second.train_step();
    }
    const Outcome of_second = second.finish();
    differences[static_cast<std::size_t>(backend.rank())] =
        difference(gpt2_alone, first.finish(), kTolerance, kTrainedTolerance) +
        difference(llama_alone, of_second, kTolerance, kTrainedTolerance);
  });
  for (const std::string& text : differences) EXPECT_EQ(text, "");
}

TEST(Parity, SameRunTwiceIsEqualToTheBit) {
  const Layout layout{.tp = 2, .pp = 2, .dp = 2, .sharded_optimizer = true};
  const Outcome a = run_case({}, layout);
  const Outcome b = run_case({}, layout);
  EXPECT_EQ(difference(a, b, 0.0), "");
}

}  // namespace
}  // namespace pentatron::parity
