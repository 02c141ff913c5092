// SPDX-License-Identifier: Apache-2.0
// --cuda-graph-impl full_iteration: recorded and replayed steps against launched ones. The test of
// RecordedRank is the ranks: it runs in processes that RecordedSteps starts, and is skipped else.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "pentatron/base/env.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/tensor/ops.h"
#include "tests/gpu/gpu_llama.h"
#include "tests/gpu/gpu_rank.h"

namespace pentatron::training {
namespace {

namespace support = testing_support;

constexpr const char* kRankVariable = "PENTATRON_GPU_RECORDED_RANK_TEST";
constexpr int kSteps = 6;
constexpr int kWarmUp = 2;

StepInputs inputs_of(int step) { return {.lr = 0.01 / (1 + step), .weight_decay = 0.1}; }

// One kind of run; `documents`: two of unlike lengths a sample, cut elsewhere in every step.
struct Case {
  const char* name;
  support::ChangeConfig change;
  bool documents = false;
  std::int64_t recorded = 1;  // shapes
};

std::vector<Case> cases() {
  return {
      {"gpt fp32", [](config::RunConfig&) {}},
      {"llama bf16", support::gpu_llama},
      {"llama bf16 packed", support::gpu_llama, /*documents=*/true},
      // Of six steps the last has the documents of the first.
      {"gpt fp32 packed: nearly every step a shape of its own", [](config::RunConfig&) {},
       /*documents=*/true},
      {"fp16 scaled",
       [](config::RunConfig& c) {
         c.training.precision = "fp16";
         c.optimizer.initial_loss_scale = 65536;
       }},
      {"fp8 tensorwise", support::gpu_llama_with([](config::RunConfig& c) {
         c.model.fp8 = "hybrid";
         c.model.fp8_recipe = "tensorwise";
       })},
      {"fp8 delayed", support::gpu_llama_with([](config::RunConfig& c) {
         c.model.fp8 = "hybrid";
         c.model.fp8_amax_history_len = 3;
       })},
      {"fp8 blockwise", support::gpu_llama_with([](config::RunConfig& c) {
         c.model.fp8 = "e4m3";
         c.model.fp8_recipe = "blockwise";
       })},
      {"recompute", support::gpu_llama_with([](config::RunConfig& c) {
         c.model.recompute_granularity = "full";
         c.model.recompute_method = "uniform";
         c.model.recompute_num_layers = 1;
       })},
      {"activations on the host", support::gpu_llama_with([](config::RunConfig& c) {
         c.model.fine_grained_activation_offloading = true;
         c.model.offload_modules = {"attn_norm", "qkv_linear", "core_attn", "attn_proj",
                                    "mlp_norm"};
         c.model.min_offloaded_tensor_size = 256;
       })},
      {"windows",
       support::gpu_llama_with([](config::RunConfig& c) { c.model.window_size = "4,0"; })},
      {"largest logit, zeros counted", support::gpu_llama_with([](config::RunConfig& c) {
         c.logging.log_max_attention_logit = true;
         c.training.log_num_zeros_in_grad = true;
       })},
      {"muon",
       support::gpu_llama_with([](config::RunConfig& c) { c.optimizer.optimizer = "muon"; })},
      {"adapters", support::gpu_llama_with([](config::RunConfig& c) { c.model.lora_rank = 4; })},
  };
}

config::RunConfig config_of(const Case& test, bool recorded, const support::Layout& layout = {},
                            const support::ChangeConfig& also = {}) {
  return support::tiny_config(layout, [&](config::RunConfig& c) {
    c.model.attention_dropout = 0;
    test.change(c);
    if (also) also(c);
    if (!recorded) return;
    c.training.cuda_graph_impl = "full_iteration";
    c.training.cuda_graph_warmup_steps = kWarmUp;
  });
}

std::vector<Batch> batches_of(Engine& engine, int step, bool documents) {
  return documents ? support::micro_batches(engine, step) : support::whole_samples(engine, step);
}

struct Losses {
  std::vector<StepResult> steps;
  std::vector<double> evaluations;  // after each step
  std::int64_t recorded = 0;
};

Losses run(const config::RunConfig& config, comm::Backend& backend, Device device, bool documents) {
  comm::ParallelContext context(backend, comm::make_grids(config.parallel));
  Engine engine(config, context, device);
  Losses result;
  for (int step = 0; step < kSteps; ++step) {
    result.steps.push_back(engine.train_step(batches_of(engine, step, documents), inputs_of(step)));
    result.evaluations.push_back(engine.evaluate(batches_of(engine, 100, documents)).loss_sum);
  }
  result.recorded = engine.num_recorded_shapes();
  return result;
}

void expect_same(const Losses& launched, const Losses& recorded, double tolerance) {
  for (std::size_t step = 0; step < launched.steps.size(); ++step) {
    SCOPED_TRACE(fmt::format("step {}", step));
    const nn::StepScalars& found = recorded.steps[step].scalars;
    for (const nn::StepScalar& scalar : launched.steps[step].scalars) {
      ASSERT_TRUE(found.find(scalar.name)) << scalar.name;
      EXPECT_NEAR(*found.find(scalar.name), scalar.value, tolerance * std::abs(scalar.value))
          << scalar.name;
    }
    EXPECT_NEAR(recorded.evaluations[step], launched.evaluations[step],
                tolerance * launched.evaluations[step]);
  }
  EXPECT_NE(launched.steps[1].loss, launched.steps[2].loss) << "one batch again and again";
}

TEST(RecordedSteps, EqualLaunchedOnes) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = tensor::resolve_device("cuda", 0, 1);
  tensor::use_device(gpu);
  // cuDNN's backward adds in no fixed order.
  constexpr double kUnordered = 2e-3;
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    const auto backend = comm::make_single_backend();
    const Losses launched = run(config_of(test, false), *backend, gpu, test.documents);
    const Losses recorded = run(config_of(test, true), *backend, gpu, test.documents);
    EXPECT_EQ(launched.recorded, 0);
    EXPECT_EQ(recorded.recorded, test.recorded);
    const bool wide = config_of(test, false).training.precision == "fp32";
    expect_same(launched, recorded, wide ? 1e-4 : kUnordered);
  }
}

TEST(RecordedSteps, BeginAfterTheWarmUp) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = tensor::resolve_device("cuda", 0, 1);
  const auto backend = comm::make_single_backend();
  const Case test{"llama", support::gpu_llama};
  const config::RunConfig config = config_of(test, true);
  comm::ParallelContext context(*backend, comm::make_grids(config.parallel));
  Engine engine(config, context, gpu);
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_EQ(engine.num_recorded_shapes(), step > kWarmUp ? 1 : 0) << step;
    (void)engine.train_step(batches_of(engine, step, false), inputs_of(step));
  }
  // Another number of micro-batches is another shape, whose first step is launched.
  std::vector<Batch> fewer = batches_of(engine, kSteps, false);
  fewer.pop_back();
  (void)engine.train_step(fewer, inputs_of(0));
  EXPECT_EQ(engine.num_recorded_shapes(), 1);
  (void)engine.train_step(fewer, inputs_of(0));
  EXPECT_EQ(engine.num_recorded_shapes(), 2);
}

// A bad step is left out, and the next one is not.
TEST(RecordedSteps, SkipWhatIsNotFinite) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = tensor::resolve_device("cuda", 0, 1);
  const auto backend = comm::make_single_backend();
  const config::RunConfig config = config_of({"llama", support::gpu_llama}, true);
  comm::ParallelContext context(*backend, comm::make_grids(config.parallel));
  Engine engine(config, context, gpu);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Batch> batches = batches_of(engine, step, false);
    const bool bad = step == kWarmUp + 1;
    if (bad) batches.front().fields["loss_mask"].fill_(std::nan(""));
    const StepResult result = engine.train_step(batches, inputs_of(step));
    EXPECT_EQ(result.skipped, bad) << step;
    EXPECT_EQ(std::isfinite(result.loss), !bad) << step;
  }
}

struct NamedLayout {
  const char* name;
  support::Layout layout;
  support::ChangeConfig change;
};

std::vector<NamedLayout> layouts() {
  return {
      {"TP2", {.tp = 2}, {}},
      {"TP2 SP", {.tp = 2}, [](config::RunConfig& c) { c.parallel.sequence_parallel = true; }},
      {"DP2", {.dp = 2}, {}},
      {"DP2 sharded", {.dp = 2, .sharded = true}, {}},
      {"DP2 sharded, gathers overlap",
       {.dp = 2, .sharded = true},
       [](config::RunConfig& c) { c.parallel.overlap_param_gather = true; }},
      {"DP2 ZeRO-3", {.dp = 2}, [](config::RunConfig& c) { c.parallel.use_megatron_fsdp = true; }},
      {"CP2", {}, [](config::RunConfig& c) {
         c.parallel.world_size = 2;
         c.parallel.context_parallel_size = 2;
       }}};
}

TEST(RecordedRank, LayoutsEqualLaunchedSteps) {
  if (!env_string(kRankVariable)) GTEST_SKIP() << "a rank; started by the tests of RecordedSteps";
  const gpu_test::GpuRank rank = gpu_test::make_gpu_rank();
  const Case test{"llama", support::gpu_llama};
  for (const NamedLayout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    const Losses launched = run(config_of(test, false, layout.layout, layout.change), *rank.backend,
                                rank.device, false);
    const Losses recorded =
        run(config_of(test, true, layout.layout, layout.change), *rank.backend, rank.device, false);
    EXPECT_EQ(recorded.recorded, 1);
    expect_same(launched, recorded, 2e-3);
  }
  rank.backend->shutdown();
}

TEST(RecordedSteps, LayoutsEqualLaunchedSteps) {
  PENTATRON_NEEDS_GPUS(2);
  EXPECT_EQ(gpu_test::launch_test(kRankVariable, 2, "RecordedRank.LayoutsEqualLaunchedSteps"), 0);
}

}  // namespace
}  // namespace pentatron::training
