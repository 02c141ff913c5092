// SPDX-License-Identifier: Apache-2.0
// Tiny models on a GPU against the CPU, and on several GPUs against one. Tests of GpuRank are the
// ranks: they run in processes that GpuParity starts, and are skipped otherwise.
#include <ATen/Context.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "pentatron/base/env.h"
#include "pentatron/datasets/gpt_sample.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/data.h"
#include "pentatron/training/placement.h"
#include "tests/gpu/gpu_rank.h"
#include "tests/parallel/layout_table.h"

namespace pentatron::parity {
namespace {

constexpr const char* kRankVariable = "PENTATRON_GPU_RANK_TEST";

Device gpu() { return tensor::resolve_device("cuda", 0, 1); }

Outcome run_alone(const CaseOptions& options, const Layout& layout = {}) {
  const auto backend = comm::make_single_backend();
  return run_rank(options, layout, *backend);
}

struct Bounds {
  const char* precision;
  double first;    // loss, gradients, norm, weights after one step
  double trained;  // what two more steps make of it
};

// Every gradient, and with hidden dropout: another mask would change the loss by percents.
TEST(GpuParity, OneStepEqualsTheCpus) {
  PENTATRON_NEEDS_GPUS(1);
  for (const Bounds& bounds : {Bounds{"fp64", 1e-10, 1e-8}, Bounds{"fp32", 1e-4, 1e-3}}) {
    for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama}) {
      SCOPED_TRACE(fmt::format("{} {}", bounds.precision,
                               kind == ModelKind::kGpt2 ? "GPT-2 kind" : "Llama kind"));
      const Outcome cpu = run_alone(options_of(kind, bounds.precision, Device("cpu")));
      const Outcome cuda = run_alone(options_of(kind, bounds.precision, gpu()));
      EXPECT_EQ(difference(cpu, cuda, bounds.first, bounds.trained), "");
    }
  }
}

// Further forms of the layer.
TEST(GpuParity, FormsOfTheLayerEqualTheCpus) {
  PENTATRON_NEEDS_GPUS(1);
  for (const auto& [form, attention] : {std::pair{"both", ""},
                                        {"gemma", ""},
                                        {"own-norms", "yarn"},
                                        {"post", "qk-all-heads"},
                                        {"padded-vocab", ""},
                                        {"smoothed-labels", ""}}) {
    SCOPED_TRACE(form);
    CaseOptions options = options_of(ModelKind::kLlama, "fp64", Device("cpu"));
    options.form = form;
    options.attention = attention;
    const Outcome cpu = run_alone(options);
    options.device = gpu();
    EXPECT_EQ(difference(cpu, run_alone(options), 1e-10, 1e-8), "");
  }
}

// fp64 by batched products; bf16 by the fused kernels where they know the form.
TEST(GpuParity, FormsOfAttentionEqualTheCpus) {
  PENTATRON_NEEDS_GPUS(1);
  for (const char* attention : {"windows", "sinks", "gate", "qk-clip", "latent", "latent-norms"}) {
    SCOPED_TRACE(attention);
    CaseOptions options = options_of(ModelKind::kLlama, "fp64", Device("cpu"));
    options.attention = attention;
    const auto both = [&](const std::string& precision) {
      options.precision = precision;
      options.device = Device("cpu");
      const Outcome cpu = run_alone(options);
      options.device = gpu();
      return std::pair{cpu, run_alone(options)};
    };
    const auto [cpu, cuda] = both("fp64");
    EXPECT_EQ(difference(cpu, cuda, 1e-10, 1e-8), "");
    const auto [rounded_cpu, rounded_cuda] = both("bf16");
    for (std::size_t step = 0; step < rounded_cpu.losses.size(); ++step) {
      EXPECT_NEAR(rounded_cuda.losses[step], rounded_cpu.losses[step],
                  1e-2 * rounded_cpu.losses[step]);
    }
  }
}

TEST(GpuParity, DropoutMasksAreThoseOfTheCpu) {
  PENTATRON_NEEDS_GPUS(1);
  CaseOptions without = options_of(ModelKind::kGpt2, "fp64", gpu());
  without.dropout = 0;
  without.steps = 1;
  CaseOptions with = without;
  with.dropout = 0.1;
  CaseOptions on_cpu = with;
  on_cpu.device = Device("cpu");
  const double loss = run_alone(with).first_loss;
  EXPECT_GT(std::abs(loss - run_alone(without).first_loss), 1e-3 * loss) << "no dropout at all";
  EXPECT_NEAR(loss, run_alone(on_cpu).first_loss, 1e-10 * loss);
}

// Everything that parts of layers save goes to the host and comes back: the CPU's gradients.
TEST(GpuParity, ActivationsOnTheHostEqualTheCpus) {
  PENTATRON_NEEDS_GPUS(1);
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const char* recompute : {"", "core_attn mlp", "block 1"}) {
      SCOPED_TRACE(recompute);
      const Outcome cpu = run_alone(options_of(kind, "fp64", Device("cpu")));
      const Outcome cuda = run_alone(
          options_of(kind, "fp64", gpu()),
          {.recompute = recompute, .offload = "attn_norm qkv_linear core_attn attn_proj mlp_norm"});
      EXPECT_EQ(difference(cpu, cuda, 1e-10, 1e-8), "");
    }
  }
}

TEST(GpuParity, FiftyStepsFollowTheCpus) {
  PENTATRON_NEEDS_GPUS(1);
  for (const auto& [precision, bound] : {std::pair{"fp32", 1e-3}, std::pair{"bf16", 2e-2}}) {
    for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama}) {
      CaseOptions options = options_of(kind, precision, Device("cpu"));
      options.steps = 50;
      const Outcome cpu = run_alone(options);
      options.device = gpu();
      const Outcome cuda = run_alone(options);
      ASSERT_EQ(cuda.losses.size(), 50U);
      EXPECT_LT(cpu.losses.back(), cpu.losses.front());
      for (std::size_t step = 0; step < cpu.losses.size(); ++step) {
        EXPECT_NEAR(cuda.losses[step], cpu.losses[step], bound * cpu.losses[step])
            << precision << " step " << step;
      }
    }
  }
}

// Batches for a GPU lie in pinned memory that is used again once they are let go of; what is copied
// from it is what was read, however soon the next batch comes.
TEST(GpuBatches, AreCopiedFromReusedPinnedMemory) {
  PENTATRON_NEEDS_GPUS(1);
  class Counting final : public datasets::SampleSource {
   public:
    [[nodiscard]] std::int64_t num_samples() const override { return 4000; }
    [[nodiscard]] std::int64_t length(std::int64_t) const override { return 4096; }
    [[nodiscard]] std::string identity() const override { return "counting"; }
    [[nodiscard]] datasets::Sample sample(std::int64_t i) const override {
      std::vector<std::int64_t> text;
      for (std::int64_t t = 0; t <= 4096; ++t) text.push_back(i * 4096 + t);
      return datasets::make_gpt_sample(text, -1, {});
    }
  };
  config::RunConfig config;
  config.training.global_batch_size = 4;
  config.training.micro_batch_size = 2;
  config.data.num_workers = 2;
  const Counting source;
  training::BatchStream stream(source, config, 0, 0, precision_policy("fp32"),
                               training::BatchStream::Use::kTraining, gpu());
  std::set<const void*> places;
  std::int64_t sample = 0;
  for (int step = 0; step < 200; ++step) {
    // As the engine holds them: until the device has come behind the copies.
    const std::vector<Batch> batches = stream.next();
    std::vector<Batch> on_gpu;
    for (const Batch& batch : batches) {
      EXPECT_TRUE(batch.tokens().is_pinned());
      places.insert(batch.tokens().const_data_ptr());
      on_gpu.push_back(to_device(batch, gpu()));
    }
    for (const Batch& batch : on_gpu) {
      const Tensor tokens = batch.tokens().to(kCpu);
      const Tensor labels = batch.labels().to(kCpu);
      for (std::int64_t row = 0; row < 2 * 4096; row += 511) {
        ASSERT_EQ(tokens.const_data_ptr<std::int64_t>()[row], sample * 4096 + row);
        ASSERT_EQ(labels.const_data_ptr<std::int64_t>()[row], sample * 4096 + row + 1);
      }
      sample += 2;
    }
  }
  EXPECT_LE(places.size(), 16U) << "buffers are not used again";
}

TEST(Placement, DeterministicMode) {
  PENTATRON_NEEDS_GPUS(1);
  const training::Placement place{.device = gpu(), .backend = "nccl"};
  training::set_up_place(place, /*deterministic_mode=*/true);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_EQ(env_string("CUBLAS_WORKSPACE_CONFIG").value_or(""), ":4096:8");
  const auto weights = [] {
    CaseOptions options = options_of(ModelKind::kGpt2, "fp32", gpu());
    options.steps = 5;
    return run_alone(options).weights;
  };
  const auto first = weights();
  const auto second = weights();
  for (const auto& [name, values] : first) EXPECT_TRUE(values.equal(second.at(name))) << name;
  training::set_up_place(place, /*deterministic_mode=*/false);
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

constexpr const char* kOffload = "attn_norm qkv_linear core_attn attn_proj mlp_norm";

std::vector<Layout> layouts(std::int64_t world) {
  if (world == 4) {
    return {{.tp = 2, .sequence_parallel = true, .pp = 2},
            {.tp = 2, .sequence_parallel = true, .pp = 2, .offload = kOffload},
            {.pp = 2, .dp = 2},
            {.pp = 4},
            {.tp = 2, .sequence_parallel = true, .cp = 2},
            {.cp = 4, .cp_comm = "a2a+p2p", .cp_inner = 2},
            {.dp = 4, .strategy = "optim_grads_params", .instances = 2}};
  }
  return {{.dp = 2},
          {.dp = 2, .sharded_optimizer = true},
          {.dp = 2, .sharded_optimizer = true, .overlap_gather = true},
          {.dp = 2, .strategy = "optim_grads"},
          {.dp = 2, .strategy = "optim_grads_params"},
          {.dp = 2, .sharded_optimizer = true, .state_on_host = true},
          {.tp = 2},
          {.tp = 2, .sequence_parallel = true},
          {.tp = 2, .recompute = "uniform 1 slices"},
          {.tp = 2, .sequence_parallel = true, .recompute = "core_attn mlp layernorm"},
          {.dp = 2, .recompute = "layernorm", .strategy = "optim_grads_params"},
          {.dp = 2, .offload = kOffload, .strategy = "optim_grads_params"},
          {.pp = 2},
          {.pp = 2, .schedule = "zb-h1"},
          {.pp = 2, .schedule = "zb-h1", .offload = kOffload},
          {.pp = 2, .chunks = 2},
          {.pp = 2, .chunks = 2, .offload = kOffload},
          {.cp = 2},
          {.cp = 2, .cp_comm = "all_gather"},
          {.cp = 2, .cp_comm = "a2a"}};
}

// One of each axis on four GPUs, for the precisions whose kernels are others; two run the table.
std::vector<Layout> layouts_of_each_axis() {
  return {{.tp = 2, .sequence_parallel = true, .pp = 2}, {.dp = 2, .cp = 2}};
}

TEST(GpuRank, LayoutsEqualOneGpu) {
  if (!env_string(kRankVariable)) GTEST_SKIP() << "a rank; started by the tests of GpuParity";
  const gpu_test::GpuRank rank = gpu_test::make_gpu_rank();
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options = options_of(kind, "fp64", rank.device);
    const Outcome alone = run_alone(options);
    for (const Layout& layout : layouts(rank.world)) {
      SCOPED_TRACE(layout.name());
      EXPECT_EQ(
          difference(alone, run_rank(options, layout, *rank.backend, layout.name()), 1e-10, 1e-8),
          "");
    }
    if (rank.world != 4) continue;
    for (const std::string precision : {"fp32", "bf16"}) {
      const CaseOptions rounded = options_of(kind, precision, rank.device);
      const Outcome one = run_alone(rounded);
      for (const Layout& layout : layouts_of_each_axis()) {
        const std::string name = precision + " " + layout.name();
        EXPECT_EQ(
            rounded_difference(one, run_rank(rounded, layout, *rank.backend, name), precision), "")
            << name;
      }
    }
  }
  rank.backend->shutdown();
}

TEST(GpuRank, LayoutTable) {
  if (!env_string(kRankVariable)) GTEST_SKIP() << "a rank; started by the tests of GpuParity";
  const gpu_test::GpuRank rank = gpu_test::make_gpu_rank();
  for (const std::string& problem :
       table_problems(table_of_two_ranks(rank.device), *rank.backend)) {
    ADD_FAILURE() << problem;
  }
  rank.backend->shutdown();
}

TEST(GpuParity, SeveralGpusEqualOne) {
  PENTATRON_NEEDS_GPUS(2);
  for (int count : {2, 4}) {
    if (count > tensor::load_cuda_library().gpus) continue;
    EXPECT_EQ(gpu_test::launch_test(kRankVariable, count, "GpuRank.LayoutsEqualOneGpu"), 0)
        << count << " GPUs";
  }
}

TEST(GpuParity, LayoutTableOfTwoGpus) {
  PENTATRON_NEEDS_GPUS(2);
  EXPECT_EQ(gpu_test::launch_test(kRankVariable, 2, "GpuRank.LayoutTable"), 0);
}

}  // namespace
}  // namespace pentatron::parity
