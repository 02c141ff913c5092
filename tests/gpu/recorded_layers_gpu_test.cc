// SPDX-License-Identifier: Apache-2.0
// --cuda-graph-impl local: layers that are replayed against layers that are queued, to the bit, on
// one GPU and in pipelines. The test of RecordedLayersRank is the ranks: it runs in processes that
// RecordedLayers starts, and is skipped else.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "pentatron/base/env.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/training/placement.h"
#include "tests/gpu/gpu_llama.h"
#include "tests/gpu/gpu_rank.h"

namespace pentatron::training {
namespace {

namespace support = testing_support;

constexpr const char* kRankVariable = "PENTATRON_GPU_RECORDED_LAYERS_RANK_TEST";
constexpr int kSteps = 7;
constexpr int kWarmUp = 2;

struct Case {
  const char* name;
  support::Layout layout;
  support::ChangeConfig change;
};

config::RunConfig config_of(const Case& test, bool local) {
  return support::tiny_config(test.layout, [&](config::RunConfig& c) {
    c.model.num_layers = 4;
    c.model.attention_dropout = 0;
    c.training.micro_batch_size = 1;
    test.change(c);
    if (!local) return;
    c.training.cuda_graph_impl = "local";
    c.training.cuda_graph_warmup_steps = kWarmUp;
  });
}

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> evaluations;
  std::map<std::string, Tensor> weights;
  std::int64_t recorded = 0;
};

Trained train(const config::RunConfig& config, comm::Backend& backend, Device device) {
  comm::ParallelContext context(backend, comm::make_grids(config.parallel));
  Engine engine(config, context, device);
  Trained result;
  for (int step = 0; step < kSteps; ++step) {
    const StepResult done = engine.train_step(support::whole_samples(engine, step),
                                              {.lr = 0.01 / (1 + step), .weight_decay = 0.1});
    result.losses.push_back(done.loss);
    result.norms.push_back(done.grad_norm);
    result.evaluations.push_back(engine.evaluate(support::whole_samples(engine, 100)).loss_sum);
  }
  result.weights = engine.gather_parameters();
  result.recorded = engine.num_recorded_shapes();
  return result;
}

void expect_same_bits(const Case& test, comm::Backend& backend, Device device) {
  SCOPED_TRACE(test.name);
  const Trained queued = train(config_of(test, false), backend, device);
  const Trained replayed = train(config_of(test, true), backend, device);
  EXPECT_GT(replayed.recorded, 0) << "no layer was recorded";
  EXPECT_EQ(replayed.losses, queued.losses);
  EXPECT_EQ(replayed.norms, queued.norms) << "norms of the gradients";
  EXPECT_EQ(replayed.evaluations, queued.evaluations);
  for (const auto& [name, values] : queued.weights) {
    EXPECT_TRUE(replayed.weights.at(name).equal(values)) << "weight " << name;
  }
}

// Kernels that add in a fixed order.
void set_up(Device device) {
  tensor::use_device(device);
  set_up_place({.device = device, .backend = "nccl"}, /*deterministic_mode=*/true);
}

TEST(RecordedLayers, HaveTheBitsOfQueuedOnes) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = tensor::resolve_device("cuda", 0, 1);
  set_up(gpu);
  const auto backend = comm::make_single_backend();
  const std::vector<Case> cases = {
      {"gpt fp32, dropout", {}, [](config::RunConfig&) {}},
      {"gpt bf16", {}, [](config::RunConfig& c) { c.training.precision = "bf16"; }},
      {"llama bf16", {}, support::gpu_llama},
      {"fp16 scaled",
       {},
       [](config::RunConfig& c) {
         c.training.precision = "fp16";
         c.optimizer.initial_loss_scale = 256.0;  // the first steps count already
       }},
      {"recompute of parts", {}, support::gpu_llama_with([](config::RunConfig& c) {
         c.model.recompute_granularity = "selective";
         c.model.recompute_modules = {"core_attn", "mlp", "layernorm"};
       })},
      {"largest logit", {}, support::gpu_llama_with([](config::RunConfig& c) {
         c.logging.log_max_attention_logit = true;
       })},
      {"means of micro-batches", {}, support::gpu_llama_with([](config::RunConfig& c) {
         c.training.loss_mean = "micro-batches";
       })},
      {"adapters", {}, support::gpu_llama_with([](config::RunConfig& c) {
         c.model.lora_rank = 4;
       })},
      {"optimizer on the host", {}, support::gpu_llama_with([](config::RunConfig& c) {
         c.optimizer.optimizer_cpu_offload = true;
       })},
  };
  for (const Case& test : cases) expect_same_bits(test, *backend, gpu);
  set_up_place({.device = gpu, .backend = "nccl"}, /*deterministic_mode=*/false);
}

std::vector<Case> layouts(std::int64_t world) {
  const auto sequence =
      support::gpu_llama_with([](config::RunConfig& c) { c.parallel.sequence_parallel = true; });
  const auto stages = support::gpu_llama_with(
      [](config::RunConfig& c) { c.parallel.num_virtual_stages_per_pipeline_rank = 2; });
  if (world == 4) {
    return {{"TP2 SP PP2", {.tp = 2, .pp = 2}, sequence},
            {"PP4", {.pp = 4}, support::gpu_llama},
            {"PP2 DP2 sharded", {.pp = 2, .dp = 2, .sharded = true}, support::gpu_llama}};
  }
  return {{"PP2", {.pp = 2}, support::gpu_llama},
          {"PP2, two stages a rank", {.pp = 2}, stages},
          {"TP2", {.tp = 2}, support::gpu_llama},
          {"TP2 SP", {.tp = 2}, sequence},
          {"DP2", {.dp = 2}, support::gpu_llama},
          {"DP2 sharded", {.dp = 2, .sharded = true}, support::gpu_llama}};
}

TEST(RecordedLayersRank, HaveTheBitsOfQueuedOnes) {
  if (!env_string(kRankVariable)) GTEST_SKIP() << "a rank; started by the tests of RecordedLayers";
  const gpu_test::GpuRank rank = gpu_test::make_gpu_rank();
  set_up(rank.device);
  for (const Case& test : layouts(rank.world)) expect_same_bits(test, *rank.backend, rank.device);
  rank.backend->shutdown();
}

TEST(RecordedLayers, LayoutsHaveTheBitsOfQueuedOnes) {
  PENTATRON_NEEDS_GPUS(2);
  for (const int count : {2, 4}) {
    if (count > tensor::load_cuda_library().gpus) continue;
    EXPECT_EQ(
        gpu_test::launch_test(kRankVariable, count, "RecordedLayersRank.HaveTheBitsOfQueuedOnes"),
        0)
        << count << " GPUs";
  }
}

}  // namespace
}  // namespace pentatron::training
