// SPDX-License-Identifier: Apache-2.0
// After the first steps nothing asks the driver for memory, whether the host queues each step or
// replays it.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "pentatron/tensor/device.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

namespace support = testing_support;

constexpr int kFirstSteps = 5;  // made once: plans of libraries, workspaces, recorded steps
constexpr int kSteps = 8;

// Calls to the driver for memory in kSteps steps after the first ones.
std::int64_t allocations_of(const support::ChangeConfig& change, bool recorded, Device gpu) {
  const config::RunConfig config = support::tiny_config({}, [&](config::RunConfig& c) {
    c.model.attention_dropout = 0;
    change(c);
    if (recorded) c.training.cuda_graph_impl = "full_iteration";
  });
  const auto backend = comm::make_single_backend();
  comm::ParallelContext context(*backend, comm::make_grids(config.parallel));
  Engine engine(config, context, gpu);
  std::int64_t before = 0;
  for (int step = 0; step < kFirstSteps + kSteps; ++step) {
    if (step == kFirstSteps) before = tensor::device_memory(gpu).device_allocations;
    (void)engine.train_step(support::micro_batches(engine, 0), {.lr = 0.01, .weight_decay = 0.1});
  }
  return tensor::device_memory(gpu).device_allocations - before;
}

TEST(SteadyState, AsksTheDriverForNoMemory) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = tensor::resolve_device("cuda", 0, 1);
  tensor::use_device(gpu);
  const std::vector<std::pair<const char*, support::ChangeConfig>> runs = {
      {"fp32", [](config::RunConfig&) {}},
      {"bf16", [](config::RunConfig& c) { c.training.precision = "bf16"; }},
      {"fp16 with a scale", [](config::RunConfig& c) { c.training.precision = "fp16"; }},
      {"fp8 delayed",
       [](config::RunConfig& c) {
         c.training.precision = "bf16";
         c.model.fp8 = "hybrid";
       }},
      {"recompute",
       [](config::RunConfig& c) {
         c.training.precision = "bf16";
         c.model.recompute_granularity = "selective";
         c.model.recompute_modules = {"core_attn", "mlp", "layernorm"};
       }},
  };
  for (const auto& [name, change] : runs) {
    for (const bool recorded : {false, true}) {
      EXPECT_EQ(allocations_of(change, recorded, gpu), 0)
          << name << (recorded ? ", replayed" : ", queued");
    }
  }
}

}  // namespace
}  // namespace pentatron::training
