// SPDX-License-Identifier: Apache-2.0
// Planned activations against the allocator, and through a schedule.
#include "pentatron/training/dry_run/activations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <iostream>

#include "pentatron/ops/unit_events.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/sequence_cut.h"
#include "pentatron/tensor/thread_memory.h"
#include "pentatron/training/dry_run/dry_run.h"
#include "pentatron/training/dry_run/test_support.h"

namespace pentatron::training::dry_run {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

// Units have their borders, as in training.
class NoEvents final : public ops::UnitEventSink {
 public:
  void on_forward_begin(int) override {}
  void on_forward_end(int) override {}
  void on_backward_begin(int) override {}
  void on_backward_end(int) override {}
};

// The sum over the ranks' stages after one forward, whose graph is kept.
std::int64_t kept_by_forward(const config::RunConfig& config) {
  const tensor::MemoryMeter meter;
  std::int64_t kept = 0;
  const auto body = [&](Engine& engine) {
    const tensor::EnableGrad with_grad;
    comm::ParallelContext& context = engine.context();
    std::vector<Batch> batches = micro_batches(engine, 0);
    if (const std::int64_t cp = context.size("cp"); cp > 1) {
      ContextPlace place{.group = &context.group("cp"),
                         .size = cp,
                         .rank = context.coordinate("cp"),
                         .inner_size = context.size("cp_inner")};
      if (place.inner_size > 1) {
        place.inner_group = &context.group("cp_inner");
        place.outer_group = &context.group("cp_outer");
      }
      batches[0] = cut_batch(batches[0], place);
    }
    NoEvents events;
    nn::StepContext step{
        .batch = batches[0], .policy = engine.policy(), .seed = 1, .events = &events};
    // The first forward makes what is made once a batch.
    static_cast<void>(engine.stages().at(0).forward({}, step));
    context.world().barrier();
    const std::int64_t before = meter.current_bytes();
    context.world().barrier();
    const nn::Bundle losses = engine.stages().at(0).forward({}, step);
    context.world().barrier();
    if (context.rank() == 0) kept = meter.current_bytes() - before;
    context.world().barrier();
  };
  with_engine(config, body);
  return kept;
}

using M = config::ModelConfig;

ChangeConfig comm(const std::string& type) {
  return [type](config::RunConfig& c) {
    llama(c);
    c.model.cp_comm_type = {type};
    if (type == "a2a+p2p") c.parallel.hierarchical_context_parallel_sizes = {"2", "2"};
    if (type.starts_with("a2a")) c.model.num_query_groups = 4;
  };
}
template <typename Member, typename Value>
ChangeConfig change(Member member, Value value) {
  return [member, value](config::RunConfig& c) { c.model.*member = value; };
}
ChangeConfig parallel_attention(const char* kind) {
  return change(&M::parallel_attention, std::string(kind));
}
void fp32_residual(config::RunConfig& c) {
  bf16(c);
  c.model.fp32_residual_connection = true;
}
ChangeConfig fp8(const char* recipe) {
  return [recipe](config::RunConfig& c) {
    llama(c);
    bf16(c);
    c.model.fp8 = "hybrid";
    c.model.fp8_recipe = recipe;
  };
}

std::vector<Case> cases_of_adapters() {
  return {
      {"adapters", {}, 1, both(llama, lora(false, 0))},
      {"adapters gpt2", {.tp = 2}, 1, lora(false, 0)},
      {"adapters, dropout", {}, 1, both(llama, lora(false, 0.1))},
      {"adapters, lengths", {}, 1, both(llama, lora(true, 0))},
      {"adapters, lengths, dropout", {.tp = 2}, 1, both(llama, lora(true, 0.1))},
      {"adapters sequence", {.tp = 2}, 1, both(sequence_parallel, lora(false, 0.1))},
      {"adapters of queries", {}, 1, lora(false, 0, {"q", "v"})},
      {"adapters behind", {}, 1, both(llama, lora(false, 0, {"down"}))},
      {"adapters of outputs", {}, 1, both(llama, lora(false, 0.1, {"o"}))},
      {"adapters gated",
       {},
       1,
       both(lora(false, 0.1, {"v", "o"}), change(&M::attention_output_gate, true))},
      {"adapters, both again", {}, 1, both(lora(false, 0), recompute({"core_attn", "mlp"}))},
      {"adapters, uniform 1", {}, 1, both(lora(true, 0), full("uniform", 1))},
      {"adapters bf16 norms on both",
       {},
       1,
       both(both(llama, bf16),
            both(lora(false, 0), change(&M::norm_placement, std::string("both"))))},
      {"adapters parallel", {}, 1, both(parallel_attention("own-norms"), lora(false, 0.1))},
      {"adapters heterogeneous", {}, 1, both(heterogeneous, lora(false, 0))},
  };
}

std::vector<Case> cases_of_numbers_and_recomputation() {
  return {
      {"gpt2"},
      {"fp8", {}, 1, fp8("tensorwise")},
      {"fp8 delayed, sequence", {.tp = 2}, 1, both(fp8("delayed"), sequence_parallel)},
      {"fp8 blockwise", {}, 1, fp8("blockwise")},
      {"fp8 blockwise, sequence", {.tp = 2}, 1, both(fp8("blockwise"), sequence_parallel)},
      {"fp8, core attention again", {}, 1, both(fp8("tensorwise"), recompute({"core_attn"}))},
      {"llama", {}, 1, llama},
      {"bf16", {}, 1, bf16},
      {"llama bf16", {}, 1, both(llama, bf16)},
      {"fp32 residual", {}, 1, fp32_residual},
      {"tensor", {.tp = 2}},
      {"sequence", {.tp = 2}, 1, sequence_parallel},
      {"sequence llama", {.tp = 2}, 1, both(llama, sequence_parallel)},
      {"data", {.dp = 2}},
      {"core attention again", {}, 1, both(llama, recompute({"core_attn"}))},
      {"mlp again", {.tp = 2}, 1, both(sequence_parallel, recompute({"mlp"}))},
      {"both again", {}, 1, recompute({"core_attn", "mlp"})},
      {"norms again", {}, 1, recompute({"layernorm"})},
      {"norms again llama", {.tp = 2}, 1, both(llama, recompute({"layernorm"}))},
      {"norms again sequence",
       {.tp = 2},
       1,
       both(sequence_parallel, recompute({"layernorm", "core_attn"}))},
      {"norms again, fp32 residual", {}, 1, both(fp32_residual, recompute({"layernorm"}))},
      {"all three again", {.tp = 2}, 1, both(llama, recompute({"layernorm", "core_attn", "mlp"}))},
      {"slices", {.tp = 2}, 1, both(full("uniform", 1), slices)},
      {"slices of four", {.tp = 4}, 1, both(llama, both(full("block", 2), slices))},
  };
}

std::vector<Case> activation_cases() {
  return {
      {"uniform 1", {}, 1, full("uniform", 1)},
      {"uniform 3", {.tp = 2}, 1, both(sequence_parallel, full("uniform", 3))},
      {"block 2", {}, 1, full("block", 2)},
      {"ring", {}, 2, comm("p2p")},
      {"gathered", {}, 2, comm("all_gather")},
      {"exchanged", {}, 2, comm("a2a")},
      {"two levels", {}, 4, comm("a2a+p2p")},
      {"ring gpt2", {.tp = 2}, 2, sequence_parallel},
      {"ring, attention again", {}, 2, both(comm("p2p"), recompute({"core_attn"}))},
      {"query norms", {}, 1, both(llama, change(&M::qk_layernorm, true))},
      {"query norms gpt2", {.tp = 2}, 1, change(&M::qk_layernorm, true)},
      {"gated", {}, 1, both(llama, change(&M::attention_output_gate, true))},
      {"norms behind", {}, 1, both(llama, change(&M::norm_placement, std::string("post")))},
      {"norms on both", {}, 1, both(llama, change(&M::norm_placement, std::string("both")))},
      {"parallel", {}, 1, parallel_attention("own-norms")},
      {"relative", {.tp = 2}, 1, both(relative, bf16)},
      {"relative ring", {}, 2, both(comm("p2p"), relative)},
      {"heterogeneous", {}, 1, heterogeneous},
      {"heterogeneous sequence bf16",
       {.tp = 2},
       1,
       both(heterogeneous, both(sequence_parallel, bf16))},
      {"heterogeneous, all again", {}, 1, both(heterogeneous, recompute({"core_attn", "mlp"}))},
      {"parallel, one norm", {}, 1, both(llama, parallel_attention("shared-norm"))},
  };
}

// Multi-latent attention of values narrower or wider than keys.
ChangeConfig latent(bool norms, std::int64_t values) {
  return [norms, values](config::RunConfig& c) {
    c.model.multi_latent_attention = true;
    c.model.q_lora_rank = norms ? 24 : 0;
    c.model.kv_lora_rank = 40;
    c.model.qk_head_dim = 16;
    c.model.qk_pos_emb_head_dim = 8;
    c.model.v_head_dim = values;
    c.model.qk_layernorm = norms;
  };
}
ChangeConfig latent_comm(const std::string& type, std::int64_t values) {
  return both(comm(type), both(latent(true, values), [](config::RunConfig& c) {
                c.model.group_query_attention = false;
                c.model.num_query_groups = 0;
              }));
}

std::vector<Case> latent_cases() {
  return {
      {"latent", {}, 1, latent(false, 16)},
      {"latent, norms", {}, 1, latent(true, 16)},
      {"latent bf16", {}, 1, both(bf16, latent(true, 16))},
      {"latent, wide values", {.tp = 2}, 1, latent(true, 32)},
      {"latent, sequence", {.tp = 2}, 1, both(sequence_parallel, latent(true, 16))},
      {"latent, core again", {}, 1, both(latent(true, 16), recompute({"core_attn"}))},
      {"latent, norms again", {}, 1, both(latent(true, 16), recompute({"layernorm"}))},
      {"latent, layers again", {}, 1, both(latent(true, 16), full("uniform", 1))},
      {"latent ring", {}, 2, latent_comm("p2p", 16)},
      {"latent ring, one size", {}, 2, latent_comm("p2p", 24)},
      {"latent gathered", {}, 2, latent_comm("all_gather", 32)},
      {"latent exchanged", {}, 2, latent_comm("a2a", 16)},
      {"latent exchanged, one size", {}, 2, latent_comm("a2a", 24)},
      {"latent, two levels", {}, 4, latent_comm("a2a+p2p", 16)},
  };
}

// Parts of layers in host memory, which is the device's own here: what a second step adds.
std::vector<Case> offload_cases() {
  const auto offload = [](const std::vector<std::string>& modules) -> ChangeConfig {
    return [modules](config::RunConfig& c) {
      c.model.fine_grained_activation_offloading = true;
      c.model.offload_modules = modules;
      c.model.min_offloaded_tensor_size = 4096;
    };
  };
  const ChangeConfig all =
      offload({"attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm"});
  const ChangeConfig norms = offload({"attn_norm", "mlp_norm"});
  const ChangeConfig core = offload({"core_attn"});
  const ChangeConfig projections = offload({"qkv_linear", "attn_proj"});
  const auto fp8 = [](config::RunConfig& c) {
    llama(c);
    bf16(c);
    c.model.fp8 = "hybrid";
    c.model.fp8_recipe = "tensorwise";
  };
  return {
      {"all gpt2", {}, 1, all},
      {"all llama", {}, 1, both(llama, all)},
      {"all bf16", {}, 1, both(both(llama, bf16), all)},
      {"norms", {}, 1, both(llama, norms)},
      {"core", {}, 1, both(llama, core)},
      {"core gpt2", {}, 1, core},
      {"projections", {.tp = 2}, 1, projections},
      {"projections fp8", {}, 1, both(fp8, projections)},
      {"all tensor", {.tp = 2}, 1, both(llama, all)},
      {"all sequence", {.tp = 2}, 1, both(both(llama, sequence_parallel), all)},
      {"all but what is made again",
       {},
       1,
       both(both(llama, recompute({"layernorm", "core_attn", "mlp"})),
            offload({"attn_norm", "core_attn", "attn_proj", "mlp_norm"}))},
      {"core made again, its output",
       {},
       1,
       both(both(llama, recompute({"core_attn"})), projections)},
      {"ring", {}, 2, both(comm("p2p"), all)},
      {"gathered", {}, 2, both(comm("all_gather"), core)},
      {"exchanged", {}, 2, both(comm("a2a"), all)},
      {"two levels", {}, 4, both(comm("a2a+p2p"), all)},
      {"query norms", {}, 1, both(both(llama, change(&M::qk_layernorm, true)), all)},
      {"gated", {}, 1, both(both(llama, change(&M::attention_output_gate, true)), all)},
      {"norms on both",
       {},
       1,
       both(both(llama, change(&M::norm_placement, std::string("both"))), all)},
      {"parallel", {}, 1, both(parallel_attention("own-norms"), norms)},
      {"parallel, one norm", {}, 1, both(both(llama, parallel_attention("shared-norm")), all)},
      {"heterogeneous", {}, 1, both(heterogeneous, all)},
      {"latent", {}, 1, both(latent(true, 16), all)},
      {"latent core", {}, 1, both(latent(false, 32), core)},
      {"latent ring", {}, 2, both(latent_comm("p2p", 16), all)},
      {"latent exchanged", {}, 2, both(latent_comm("a2a", 16), all)},
      {"a share", {}, 1, both(both(llama, all), change(&M::activation_offload_fraction, 0.35))},
      {"large ones alone",
       {},
       1,
       both(both(llama, all), change(&M::min_offloaded_tensor_size, std::int64_t{16384}))},
  };
}

void expect_what_a_forward_keeps(const std::vector<Case>& cases) {
  for (const Case& what : cases) {
    const config::RunConfig config = config_of({what.name, what.layout, what.cp, [&](auto& c) {
                                                  c.training.micro_batch_size = 16;
                                                  c.training.global_batch_size =
                                                      16 * what.layout.dp;
                                                  if (what.change) what.change(c);
                                                }});
    const RunPlan run(config);
    const ModelPlace place(run, 0);
    const StageActivations one =
        stage_activations(config, place.stages()[0], place.plans()[0], run.specs);
    const std::int64_t planned = (one.layers + one.logits) * config.parallel.world_size;
    const auto kept = static_cast<double>(kept_by_forward(config));
    EXPECT_NEAR(static_cast<double>(planned) / kept, 1.0, 0.01)
        << what.name << ": planned " << planned << ", kept " << kept;
    std::cout << what.name << ": planned / kept " << static_cast<double>(planned) / kept << "\n";
  }
}

TEST(DryRun, ActivationsAreWhatAForwardKeeps) {
  expect_what_a_forward_keeps(activation_cases());
  expect_what_a_forward_keeps(cases_of_numbers_and_recomputation());
}
TEST(DryRun, ActivationsOfLatentsAreWhatAForwardKeeps) {
  expect_what_a_forward_keeps(latent_cases());
}
TEST(DryRun, OffloadedActivationsAreWhatASecondForwardAdds) {
  expect_what_a_forward_keeps(offload_cases());
}
TEST(DryRun, ActivationsOfAdaptersAreWhatAForwardKeeps) {
  expect_what_a_forward_keeps(cases_of_adapters());
}

// All that each rank holds at the fullest moment of two steps, the engine's making among it; the
// sum over the ranks, whose fullest moments need not be one.
std::int64_t peak_of_training(const config::RunConfig& config) {
  const tensor::MemoryMeter meter;
  std::atomic<std::int64_t> peaks = 0;
  with_engine(config, [&](Engine& engine) {
    tensor::reset_thread_peak();
    (void)train_steps(engine, 0, 2);
    peaks += tensor::thread_peak_bytes();
  });
  return peaks;
}

TEST(DryRun, MemoryIsThePeakOfTraining) {
  const auto offload = [](config::RunConfig& c) {
    llama(c);
    c.model.fine_grained_activation_offloading = true;
    c.model.offload_modules = {"attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm"};
    c.model.min_offloaded_tensor_size = 4096;
  };
  const auto full = [](config::RunConfig& c) {
    c.model.recompute_granularity = "full";
    c.model.recompute_method = "uniform";
    c.model.recompute_num_layers = 1;
  };
  const auto wide_vocabulary = [](config::RunConfig& c) {
    c.model.make_vocab_size_divisible_by = 4096;
  };
  for (const Case& what :
       {Case{"gpt2"}, Case{"llama", {}, 1, llama},
        Case{"logits are the most", {}, 1, both(llama, wide_vocabulary)},
        Case{"latent", {}, 1, latent(true, 16)}, Case{"layers again", {}, 1, both(llama, full)},
        Case{"offloaded", {}, 1, offload},
        Case{"layers again, logits", {}, 1, both(full, wide_vocabulary)},
        Case{"sharded", {.dp = 2, .sharded = true}, 1, llama}}) {
    const config::RunConfig config = config_of({what.name, what.layout, what.cp, [&](auto& c) {
                                                  c.training.micro_batch_size = 64;
                                                  c.training.global_batch_size =
                                                      128 * what.layout.dp;
                                                  if (what.change) what.change(c);
                                                }});
    const MemoryPlan memory = plan(config).asked.memory;
    // On the CPU both are one.
    const auto planned =
        static_cast<double>((memory.total() + memory.on_host) * config.parallel.world_size);
    const auto peak = static_cast<double>(peak_of_training(config));
    EXPECT_NEAR(planned / peak, 1.0, 0.05)
        << what.name << ": planned " << planned << ", peak " << peak;
    std::cout << what.name << ": planned / peak " << planned / peak << "\n";
  }
}

}  // namespace
}  // namespace pentatron::training::dry_run
