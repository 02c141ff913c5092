// SPDX-License-Identifier: Apache-2.0
// Planned traffic against what a step sends.
#include "pentatron/training/dry_run/traffic.h"

#include <gtest/gtest.h>

#include <utility>

#include "pentatron/training/dry_run/dry_run.h"
#include "pentatron/training/dry_run/test_support.h"

namespace pentatron::training::dry_run {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

ChangeConfig comm(const std::string& type) {
  return [type](config::RunConfig& c) { c.model.cp_comm_type = {type}; };
}

ChangeConfig latent(std::int64_t q_rank) {
  return [q_rank](config::RunConfig& c) {
    c.model.group_query_attention = false;
    c.model.num_query_groups = 0;
    c.model.multi_latent_attention = true;
    c.model.q_lora_rank = q_rank;
    c.model.kv_lora_rank = 20;
    c.model.qk_head_dim = 6;
    c.model.qk_pos_emb_head_dim = 4;
    c.model.v_head_dim = 8;
  };
}

std::vector<Case> traffic_cases() {
  const ChangeConfig layers_again = full("uniform", 1);
  const ChangeConfig mlp_again = recompute({"mlp", "core_attn"});
  const ChangeConfig norms_again = recompute({"layernorm"});
  const auto instances = [](config::RunConfig& c) {
    c.parallel.num_distributed_optimizer_instances = 2;
  };
  const auto virtual_stages = [](config::RunConfig& c) {
    c.parallel.num_virtual_stages_per_pipeline_rank = 2;
    c.training.micro_batch_size = 1;
  };
  const auto zero3 = strategy("optim_grads_params");
  const auto narrow_travel = [](config::RunConfig& c) {
    c.training.precision = "bf16";
    c.parallel.megatron_fsdp_grad_comm_dtype = "bf16";
  };
  return {
      {"tensor", {.tp = 2}},
      {"smoothed labels",
       {.tp = 2},
       1,
       [](config::RunConfig& c) { c.model.label_smoothing = 0.1; }},
      {"ZeRO 3, gradients travel in bf16", {.dp = 2}, 1, both(zero3, narrow_travel)},
      {"sequence", {.tp = 2}, 1, sequence_parallel},
      {"sequence llama, layers again",
       {.tp = 4},
       1,
       both(llama, both(sequence_parallel, layers_again))},
      {"sequence, modules again", {.tp = 2}, 1, both(sequence_parallel, mlp_again)},
      {"layers again from slices", {.tp = 2, .pp = 2}, 1, both(layers_again, slices)},
      {"norms again", {.tp = 2}, 1, both(sequence_parallel, norms_again)},
      {"relative", {.tp = 2, .pp = 2, .dp = 2, .sharded = true}, 1, relative},
      {"relative ZeRO 3", {.dp = 2}, 1, both(relative, zero3)},
      {"relative ZeRO 3, layers again",
       {.pp = 2, .dp = 2},
       1,
       both(relative, both(zero3, layers_again))},
      {"heterogeneous tensor", {.tp = 2}, 1, heterogeneous},
      {"heterogeneous sequence, modules again",
       {.tp = 2},
       1,
       both(heterogeneous, both(sequence_parallel, mlp_again))},
      {"heterogeneous ring", {.pp = 2}, 2, both(heterogeneous, comm("p2p"))},
      {"pipeline", {.pp = 2}},
      {"virtual stages", {.pp = 2}, 1, virtual_stages},
      {"data", {.dp = 2}},
      {"ZeRO 1", {.dp = 2, .sharded = true}},
      {"ZeRO 1 in copies", {.dp = 4, .sharded = true}, 1, instances},
      {"ZeRO 2", {.dp = 2}, 1, strategy("optim_grads")},
      {"ZeRO 3", {.dp = 2}, 1, zero3},
      {"ZeRO 3, layers again", {.dp = 2}, 1, both(zero3, layers_again)},
      {"ZeRO 3 llama pipeline", {.pp = 2, .dp = 2}, 1, both(zero3, llama)},
      {"ring", {}, 2, comm("p2p")},
      {"gathered, layers again", {}, 2, both(comm("all_gather"), layers_again)},
      {"exchanged", {.pp = 2}, 2, comm("a2a")},
      {"all", {.tp = 2, .pp = 2}, 2, both(sequence_parallel, zero3)},
      {"adapters", {.tp = 2}, 1, both(llama, lora(false, 0))},
      {"adapters, lengths, dropout", {.tp = 2}, 1, lora(true, 0.1)},
      {"adapters sequence", {.tp = 2, .pp = 2}, 1, both(sequence_parallel, lora(false, 0.1))},
      {"adapters sequence, lengths, layers again",
       {.tp = 2},
       1,
       both(sequence_parallel, both(layers_again, lora(true, 0.1)))},
      {"adapters behind", {.tp = 2}, 1, both(sequence_parallel, lora(false, 0, {"down"}))},
      {"adapters ZeRO 1", {.tp = 2, .dp = 2, .sharded = true}, 1, lora(false, 0)},
      {"adapters ZeRO 3", {.pp = 2, .dp = 2}, 1, both(zero3, lora(false, 0))},
      {"adapters ring", {}, 2, both(comm("p2p"), lora(false, 0))},
  };
}

std::vector<Case> latent_traffic_cases() {
  return {
      {"latent", {.tp = 2}, 1, latent(0)},
      {"latent sequence, layers again",
       {.tp = 2},
       1,
       both(latent(12), both(sequence_parallel, full("uniform", 1)))},
      {"latent sequence pipeline", {.tp = 2, .pp = 2}, 1, both(latent(0), sequence_parallel)},
      {"latent ring", {.tp = 2}, 2, both(comm("p2p"), latent(12))},
      {"latent exchanged", {}, 2, both(comm("a2a"), latent(12))},
  };
}

// What each rank sends in a step, by axis and operation.
TEST(DryRun, TrafficIsWhatAStepSends) {
  std::vector<Case> cases = traffic_cases();
  for (Case& what : latent_traffic_cases()) cases.push_back(std::move(what));
  for (const Case& what : cases) {
    const config::RunConfig config = config_of(what);
    comm::run_threads({.world_size = config.parallel.world_size}, [&](comm::Backend& threads) {
      Counts sent;
      CountingBackend backend(threads, sent);
      comm::ParallelContext context(backend, comm::make_grids(config.parallel));
      Engine engine(config, context);
      // Gathers ahead of a unit go by what it used the time before.
      static_cast<void>(engine.train_step(micro_batches(engine, 0), 0.01, 0.1));
      sent.clear();
      static_cast<void>(engine.train_step(micro_batches(engine, 0), 0.01, 0.1));
      config::RunConfig mine = config;
      mine.parallel.rank = context.rank();
      const Counts planned = counts_of(plan(mine).traffic);
      for (const auto& [key, count] : sent) {
        const auto found = planned.find(key);
        const Count expected = found == planned.end() ? Count{} : found->second;
        EXPECT_EQ(count.calls, expected.calls) << what.name << " " << context.label() << " " << key;
        EXPECT_EQ(count.bytes, expected.bytes) << what.name << " " << context.label() << " " << key;
      }
      for (const auto& [key, count] : planned) {
        EXPECT_TRUE(sent.contains(key)) << what.name << " " << context.label() << " " << key;
      }
    });
  }
}

}  // namespace
}  // namespace pentatron::training::dry_run
