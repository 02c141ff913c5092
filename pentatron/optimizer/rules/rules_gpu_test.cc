// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "pentatron/optimizer/rules/test_support.h"
#include "pentatron/tensor/gpu_test_support.h"

// Rules and offload on a GPU against the CPU.
namespace pentatron::optimizer {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

const Device kGpu("cuda:0");

// The state after three steps of one rank on `device`.
WholeTensors state_on(Device device, const config::OptimizerConfig& config,
                      const PrecisionPolicy& policy, const distributed::StoreOptions& options) {
  const auto backend = comm::make_single_backend();
  comm::ParallelContext context(*backend, make_grid({}));
  Model model(context, policy, device);
  distributed::ParameterStore store(model.units, context, options, policy, device);
  store.fill([](nn::Parameter& parameter) {
    for (const nn::ShardPart& part : parameter.spec().parts) {
      nn::part_view(parameter.data(), part).copy_(whole_values(part.name, part.logical_shape, 0));
    }
  });
  Optimizer optimizer(store, context, config, policy, WidthScaling{}, Rig::kSeed);
  for (int step = 1; step <= 3; ++step) {
    for (distributed::Piece& piece : store.pieces()) {
      piece.grad.copy_(whole_values(piece.part->name, piece.part->logical_shape, step)
                           .reshape({-1})
                           .narrow(0, piece.box_begin, piece.length()));
    }
    (void)optimizer.step(kStepRate, kStepDecay);
  }
  WholeTensors state;
  for (const StateSlice& slice : optimizer.state_slices(true)) {
    state[slice.kind + "/" + slice.part->name] = slice.values.cpu();
  }
  return state;
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

TEST(RulesOnGpu, LionAndSoapEqualTheCpu) {
  PENTATRON_NEEDS_GPUS(1);
  const PrecisionPolicy policy = precision_policy("fp64");
  for (const char* optimizer : {"lion", "soap"}) {
    const distributed::StoreOptions options{.cut = distributed::ShardCut::kMatrices};
    const WholeTensors gpu = state_on(kGpu, config_of(optimizer), policy, options);
    WholeTensors cpu = state_on(kCpu, config_of(optimizer), policy, options);
    for (const auto& [name, value] : gpu) {
      // Eigenvectors have a sign and, where no gradient was, a direction of their own.
      if (name.find("_basis/") != std::string::npos || name.starts_with("exp_avg_sq/")) continue;
      EXPECT_LT(value.sub(cpu.at(name)).abs().max().item<double>(), 1e-4) << name;
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
