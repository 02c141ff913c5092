// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run_policy.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "pentatron/optimizer/rules/whole_matrix.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

TEST(RunPolicy, FollowsTheOptions) {
  config::RunConfig config;
  config.training.precision = "bf16";
  EXPECT_EQ(run_policy(config).main_grad, DType::Float);
  config.parallel.grad_reduce_in_bf16 = true;
  EXPECT_EQ(run_policy(config).main_grad, DType::BFloat16);
  EXPECT_EQ(run_policy(config).reduction, DType::BFloat16);
  EXPECT_EQ(run_policy(config).main_parameter, DType::Float);
  config.parallel.grad_reduce_in_bf16 = false;
  config.optimizer.main_params_dtype = config.optimizer.main_grads_dtype = "bf16";
  EXPECT_EQ(run_policy(config).main_grad, DType::Float) << "without the switch";
  EXPECT_EQ(run_policy(config).main_parameter, DType::Float) << "without the switch";
  config.parallel.megatron_fsdp_grad_comm_dtype = "bf16";
  EXPECT_EQ(run_policy(config).reduction, DType::Float) << "without the switch";
  config.parallel.use_megatron_fsdp = true;
  EXPECT_EQ(run_policy(config).main_grad, DType::Float);
  EXPECT_EQ(run_policy(config).reduction, DType::BFloat16);
  config.parallel.megatron_fsdp_main_grads_dtype = "bf16";
  config.parallel.megatron_fsdp_grad_comm_dtype = "auto";
  EXPECT_EQ(run_policy(config).main_grad, DType::BFloat16);
  EXPECT_EQ(run_policy(config).reduction, DType::BFloat16);
  config.parallel.megatron_fsdp_grad_comm_dtype = "fp32";
  EXPECT_EQ(run_policy(config).reduction, DType::Float);
  config.parallel = {};
  config.optimizer.use_precision_aware_optimizer = true;
  EXPECT_EQ(run_policy(config).main_grad, DType::BFloat16);
  EXPECT_EQ(run_policy(config).reduction, DType::BFloat16);
  EXPECT_EQ(run_policy(config).main_parameter, DType::BFloat16);
  config.training.precision = "fp64";
  config.optimizer.main_params_dtype = config.optimizer.main_grads_dtype = "fp32";
  EXPECT_EQ(run_policy(config).main_parameter, DType::Double) << "the usual width";
}

// Whole gradients of the first step by part.
std::map<std::string, Tensor> gradients(const Layout& layout, const ChangeConfig& change) {
  std::map<std::string, Tensor> whole;
  std::mutex mutex;
  const config::RunConfig config = tiny_config(layout, [&](config::RunConfig& c) {
    c.training.precision = "bf16";
    c.model.hidden_dropout = c.model.attention_dropout = 0;
    if (change) change(c);
  });
  with_engine(config, [&](Engine& engine) {
    (void)train_steps(engine, 0, 1);
    const std::lock_guard lock(mutex);
    for (const distributed::Piece& piece : engine.optimizer().store(0).pieces()) {
      EXPECT_EQ(piece.grad.scalar_type() == DType::BFloat16, config.parallel.grad_reduce_in_bf16);
      const nn::ShardPart& part = *piece.part;
      Tensor& t = whole[part.name];
      if (!t.defined()) t = tensor::zeros(part.logical_shape, DType::Double);
      const Tensor box = optimizer::in_box(t, part.box).reshape({-1}).clone();
      box.narrow(0, piece.box_begin, piece.length()).copy_(piece.grad);
      optimizer::in_box(t, part.box).copy_(box.view(part.box.size));
    }
  });
  return whole;
}

// A sum of bf16 numbers in bf16: one rounding for each micro-batch and one for the reduction, so
// the bound is a few steps of bf16 of the largest.
TEST(GradReduceInBf16, EveryShardingWithinBf16) {
  const auto strategy = [](const char* name) -> ChangeConfig {
    return [name](config::RunConfig& c) {
      c.parallel.use_megatron_fsdp = true;
      c.parallel.data_parallel_sharding_strategy = name;
    };
  };
  struct Case {
    const char* name;
    Layout layout;
    ChangeConfig change;
  };
  const std::vector<Case> cases = {{"alone", {}, {}},
                                   {"DDP", {.dp = 2}, {}},
                                   {"ZeRO-1", {.dp = 2, .sharded = true}, {}},
                                   {"ZeRO-2", {.tp = 2, .dp = 2}, strategy("optim_grads")},
                                   {"ZeRO-3", {.pp = 2, .dp = 2}, strategy("optim_grads_params")},
                                   {"HSDP", {.dp = 4, .sharded = true}, [](config::RunConfig& c) {
                                      c.parallel.num_distributed_optimizer_instances = 2;
                                    }}};
  for (const Case& what : cases) {
    // Of the same layout, whose activations in bf16 have their own rounding.
    const std::map<std::string, Tensor> exact = gradients(what.layout, what.change);
    double largest_of_all = 0;  // some exact gradients are zero: a key's bias moves no softmax
    for (const auto& [name, value] : exact) {
      largest_of_all = std::max(largest_of_all, value.abs().max().item<double>());
    }
    const auto found = gradients(what.layout, [&](config::RunConfig& c) {
      c.parallel.grad_reduce_in_bf16 = true;
      c.training.micro_batch_size = 2;
      if (what.change) what.change(c);
    });
    ASSERT_EQ(found.size(), exact.size()) << what.name;
    for (const auto& [name, value] : exact) {
      const double largest = std::max(value.abs().max().item<double>(), 1e-3 * largest_of_all);
      const double off = found.at(name).sub(value).abs().max().item<double>();
      EXPECT_LT(off, largest * 0.04) << what.name << " " << name;
    }
  }
}

}  // namespace
}  // namespace pentatron::training
