// SPDX-License-Identifier: Apache-2.0
// --fine-grained-activation-offloading on a GPU: the peak of the allocator falls by what the dry
// run says, gradients keep their bits, and steps after the first allocate nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "pentatron/tensor/device.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/dry_run/dry_run.h"
#include "pentatron/training/llama_test_support.h"
#include "pentatron/training/placement.h"

namespace pentatron::training {
namespace {

namespace support = testing_support;

constexpr std::int64_t kLayers = 6;
constexpr std::int64_t kMicroBatches = 2;

// Activations of several MiB: 512 samples of 16 tokens, 256 channels.
config::RunConfig wide_config(bool offload, const std::string& precision) {
  return support::tiny_config({}, [&](config::RunConfig& c) {
    config::ModelConfig& m = c.model;
    m.num_layers = kLayers;
    m.hidden_size = 256;
    m.num_attention_heads = 4;
    support::make_llama(m);
    m.hidden_dropout = 0;
    m.attention_dropout = 0;
    c.training.precision = precision;
    c.training.micro_batch_size = 512;
    c.training.global_batch_size = 512 * kMicroBatches;
    if (!offload) return;
    m.fine_grained_activation_offloading = true;
    m.offload_modules = {"attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm"};
  });
}

struct Measured {
  std::int64_t peak = 0;                // of a step after the first
  std::int64_t driver_allocations = 0;  // in the last three of five steps
  std::map<std::string, Tensor> gradients;
  std::vector<double> losses;
};

Measured measure(const config::RunConfig& config, Device gpu) {
  const auto backend = comm::make_single_backend();
  comm::ParallelContext context(*backend, comm::make_grids(config.parallel));
  Engine engine(config, context, gpu);
  Measured result;
  (void)engine.forward_backward(support::whole_samples(engine, 0));
  tensor::synchronize(gpu);
  tensor::reset_peak_memory(gpu);
  (void)engine.forward_backward(support::whole_samples(engine, 0));
  tensor::synchronize(gpu);
  result.peak = tensor::device_memory(gpu).peak_allocated;
  result.gradients = engine.gather_gradients();
  std::int64_t before = 0;
  for (int step = 0; step < 5; ++step) {
    if (step == 2) before = tensor::device_memory(gpu).device_allocations;
    result.losses.push_back(
        engine.train_step(support::whole_samples(engine, step), {.lr = 0.01, .weight_decay = 0.1})
            .loss);
  }
  result.driver_allocations = tensor::device_memory(gpu).device_allocations - before;
  return result;
}

// What moves and what stays, in a form whose kernels add in a fixed order.
TEST(ActivationOffload, PeakFallsAsPlannedAndGradientsKeepTheirBits) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = tensor::resolve_device("cuda", 0, 1);
  set_up_place({.device = gpu, .backend = "nccl"}, /*deterministic_mode=*/true);
  for (const char* precision : {"bf16", "fp32"}) {
    SCOPED_TRACE(precision);
    const config::RunConfig plain = wide_config(false, precision);
    const config::RunConfig moved = wide_config(true, precision);
    const Measured kept = measure(plain, gpu);
    tensor::empty_device_cache();
    const Measured offloaded = measure(moved, gpu);
    for (const auto& [name, gradient] : kept.gradients) {
      EXPECT_TRUE(offloaded.gradients.at(name).equal(gradient)) << "gradient of " << name;
    }
    EXPECT_EQ(offloaded.losses, kept.losses);
    EXPECT_EQ(offloaded.driver_allocations, 0) << "calls for device memory in the steady state";
    const auto planned = static_cast<double>(dry_run::plan(plain).asked.memory.total() -
                                             dry_run::plan(moved).asked.memory.total());
    const auto fell = static_cast<double>(kept.peak - offloaded.peak);
    std::cout << fmt::format("{}: peak {:.1f} -> {:.1f} MiB, fell by {:.1f}, planned {:.1f}\n",
                             precision, static_cast<double>(kept.peak) / 1048576,
                             static_cast<double>(offloaded.peak) / 1048576, fell / 1048576,
                             planned / 1048576);
    EXPECT_GT(planned, 0);
    EXPECT_NEAR(fell / planned, 1.0, 0.1) << "fall of the peak against the dry run's";
  }
  set_up_place({.device = gpu, .backend = "nccl"}, /*deterministic_mode=*/false);
}

}  // namespace
}  // namespace pentatron::training
