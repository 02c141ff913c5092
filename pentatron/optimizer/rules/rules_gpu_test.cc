// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "pentatron/optimizer/rules/test_support.h"
#include "pentatron/tensor/gpu_test_support.h"

// Rules and offload on a GPU against the CPU.
namespace pentatron::optimizer {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

const Device kGpu("cuda:0");

// One rank's store and optimizer on `device`.
class OneRank final {
 public:
  OneRank(Device device, const config::OptimizerConfig& config, const PrecisionPolicy& policy,
          const distributed::StoreOptions& options)
      : backend_(comm::make_single_backend()),
        context_(*backend_, make_grid({})),
        model_(context_, policy, device),
        store_(model_.units, context_, options, policy, device) {
    store_.fill([](nn::Parameter& parameter) {
      for (const nn::ShardPart& part : parameter.spec().parts) {
        nn::part_view(parameter.data(), part).copy_(whole_values(part.name, part.logical_shape, 0));
      }
    });
    optimizer_.emplace(store_, context_, config, policy, WidthScaling{}, Rig::kSeed);
  }
  // Steps [first, last], counted from 1.
  void steps(int first, int last) {
    for (int step = first; step <= last; ++step) {
      for (distributed::Piece& piece : store_.pieces()) {
        piece.grad.copy_(whole_values(piece.part->name, piece.part->logical_shape, step)
                             .reshape({-1})
                             .narrow(0, piece.box_begin, piece.length()));
      }
      (void)optimizer_->step(kStepRate, kStepDecay);
    }
  }
  [[nodiscard]] WholeTensors state() {
    WholeTensors state;
    for (const StateSlice& slice : optimizer_->state_slices(true)) {
      state[slice.kind + "/" + slice.part->name] = slice.values.cpu();
    }
    return state;
  }
  // As a checkpoint is loaded.
  void take(const WholeTensors& state) {
    for (const StateSlice& slice : optimizer_->state_slices(false)) {
      slice.values.copy_(state.at(slice.kind + "/" + slice.part->name));
    }
    optimizer_->refresh_parameters();
  }

 private:
  std::unique_ptr<comm::Backend> backend_;
  comm::ParallelContext context_;
  Model model_;
  distributed::ParameterStore store_;
  std::optional<Optimizer> optimizer_;
};

// The state after three steps.
WholeTensors state_on(Device device, const config::OptimizerConfig& config,
                      const PrecisionPolicy& policy, const distributed::StoreOptions& options) {
  OneRank rank(device, config, policy, options);
  rank.steps(1, 3);
  return rank.state();
}

config::OptimizerConfig config_of(const std::string& optimizer) {
  config::OptimizerConfig c;
  c.optimizer = optimizer;
  c.clip_grad = 0;
  c.adam_eps = 1e-3;
  return c;
}

TEST(RulesOnGpu, AllBf16StateHasTheCpusBits) {
  PENTATRON_NEEDS_GPUS(1);
  config::OptimizerConfig c = config_of("adam");
  c.use_precision_aware_optimizer = true;
  c.exp_avg_dtype = c.exp_avg_sq_dtype = c.main_params_dtype = c.main_grads_dtype = "bf16";
  const PrecisionPolicy policy = precision_policy("bf16_state");
  EXPECT_EQ(difference(state_on(kGpu, c, policy, {}), state_on(kCpu, c, policy, {})), 0.0);
}

// Eigenvectors have a sign and, where no gradient was, a direction of their own: SOAP goes on from
// the CPU's, which stay for ten steps.
TEST(RulesOnGpu, LionAndSoapEqualTheCpu) {
  PENTATRON_NEEDS_GPUS(1);
  const PrecisionPolicy policy = precision_policy("fp64");
  for (const char* optimizer : {"lion", "soap"}) {
    const distributed::StoreOptions options{.cut = distributed::ShardCut::kMatrices};
    OneRank cpu(kCpu, config_of(optimizer), policy, options);
    OneRank gpu(kGpu, config_of(optimizer), policy, options);
    cpu.steps(1, 1);
    gpu.steps(1, 1);
    gpu.take(cpu.state());
    cpu.steps(2, 4);
    gpu.steps(2, 4);
    const WholeTensors expected = cpu.state();
    for (const auto& [name, value] : gpu.state()) {
      EXPECT_LT(value.sub(expected.at(name)).abs().max().item<double>(), 1e-9) << name;
    }
  }
}

TEST(OffloadOnGpu, PartsAndOverlapChangeNoBit) {
  PENTATRON_NEEDS_GPUS(1);
  const PrecisionPolicy policy = precision_policy("bf16");
  for (const char* optimizer : {"adam", "sgd"}) {
    const WholeTensors usual = state_on(kGpu, config_of(optimizer), policy, {});
    for (const double fraction : {0.4, 1.0}) {
      for (const bool overlap : {false, true}) {
        const distributed::StoreOptions options{
            .state_on_host = true, .host_fraction = fraction, .overlap_host_copies = overlap};
        EXPECT_EQ(difference(state_on(kGpu, config_of(optimizer), policy, options), usual), 0.0)
            << optimizer << " fraction " << fraction << (overlap ? " overlapped" : "");
      }
    }
  }
}

}  // namespace
}  // namespace pentatron::optimizer
