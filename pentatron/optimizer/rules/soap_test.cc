// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/soap.h"

#include <gtest/gtest.h>

#include <functional>

#include "pentatron/base/error.h"
#include "pentatron/optimizer/rules/test_support.h"
#include "pentatron/optimizer/state_plan.h"
#include "pentatron/tensor/linear_algebra.h"

namespace pentatron::optimizer {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
using distributed::Sharding;

constexpr int kSteps = 5;

config::OptimizerConfig soap_config() {
  config::OptimizerConfig c;
  c.optimizer = "soap";
  c.clip_grad = 0;
  c.adam_beta1 = 0.9;
  c.adam_beta2 = 0.95;
  c.adam_eps = 1e-3;
  c.soap_shampoo_beta = 0.9;
  c.soap_precondition_frequency = 2;
  return c;
}

// Orthonormal columns by Gram and Schmidt, one after the other.
Tensor gram_schmidt(const Tensor& x) {
  std::vector<Tensor> columns;
  for (std::int64_t j = 0; j < x.size(1); ++j) {
    Tensor q = x.select(1, j).clone();
    for (int twice = 0; twice < 2; ++twice) {
      for (const Tensor& before : columns) q = q.sub(before.mul(q.mul(before).sum()));
    }
    columns.push_back(q.div(q.square().sum().sqrt()));
  }
  return tensor::stack(columns, 1);
}

struct Matrix {
  Tensor p, m, v, left, right, left_basis, right_basis;
};

// Eigenvectors of the statistic under the ramp of soap.h.
Tensor first_basis(const Tensor& statistic) {
  const std::int64_t n = statistic.size(0);
  const double step = std::pow(2.0, -13) * statistic.trace().item<double>() / double(n * n);
  Tensor ramped = statistic.clone();
  for (std::int64_t i = 0; i < n; ++i) ramped.select(0, i).select(0, i).add_(step * double(n - i));
  return tensor::eigenvectors(ramped);
}
// What the next basis keeps of the last.
double kept(const Tensor& statistic) {
  return std::pow(2.0, -26) * statistic.trace().item<double>() / double(statistic.size(0));
}

// One matrix by the paper's algorithm 3, in fp64, step by step.
Matrix reference(const Rule& rule, const config::OptimizerConfig& c) {
  Matrix s;
  s.p = whole_values(rule.name, rule.shape, 0);
  const std::int64_t rows = rule.shape[0], columns = rule.shape[1];
  s.m = tensor::zeros(rule.shape, DType::Double);
  s.v = tensor::zeros(rule.shape, DType::Double);
  s.left = tensor::zeros({rows, rows}, DType::Double);
  s.right = tensor::zeros({columns, columns}, DType::Double);
  for (int step = 1; step <= kSteps; ++step) {
    const Tensor g = whole_values(rule.name, rule.shape, step);
    const auto add_statistics = [&] {
      s.left = s.left.mul(c.soap_shampoo_beta).add(g.matmul(g.t()).mul(1 - c.soap_shampoo_beta));
      s.right = s.right.mul(c.soap_shampoo_beta).add(g.t().matmul(g).mul(1 - c.soap_shampoo_beta));
    };
    if (step == 1) {
      add_statistics();
      s.left_basis = first_basis(s.left);
      s.right_basis = first_basis(s.right);
    }
    const auto turn = [&](const Tensor& x) {
      return s.left_basis.t().matmul(x).matmul(s.right_basis);
    };
    s.m = s.m.mul(c.adam_beta1).add(g.mul(1 - c.adam_beta1));
    s.v = s.v.mul(c.adam_beta2).add(turn(g).square().mul(1 - c.adam_beta2));
    const Tensor n = turn(s.m)
                         .div(1 - std::pow(c.adam_beta1, step))
                         .div(s.v.div(1 - std::pow(c.adam_beta2, step)).sqrt().add(c.adam_eps));
    const Tensor back = s.left_basis.matmul(n).matmul(s.right_basis.t());
    s.p = s.p.sub(back.add(s.p.mul(kStepDecay)).mul(kStepRate));
    if (step == 1) continue;
    add_statistics();
    if (step % c.soap_precondition_frequency != 0) continue;
    s.left_basis = gram_schmidt(s.left.matmul(s.left_basis).add(s.left_basis.mul(kept(s.left))));
    s.right_basis =
        gram_schmidt(s.right.matmul(s.right_basis).add(s.right_basis.mul(kept(s.right))));
  }
  return s;
}

double worst_deviation(const WholeTensors& state, const config::OptimizerConfig& config) {
  double worst = 0;
  for (const auto& rules : weights()) {
    for (const Rule& rule : rules) {
      if (!state.contains("soap_left/" + rule.name)) continue;
      const Matrix expected = reference(rule, config);
      for (const auto& [kind, value] :
           {std::pair{"main_param/", expected.p}, std::pair{"exp_avg/", expected.m},
            std::pair{"soap_left/", expected.left}, std::pair{"soap_right/", expected.right}}) {
        const Tensor& found = state.at(kind + rule.name);
        worst = std::max(worst, found.sub(value).abs().max().item<double>());
      }
    }
  }
  return worst;
}

TEST(Soap, EqualsTheFormulas) {
  const std::vector<std::function<void(config::OptimizerConfig&)>> changes = {
      [](config::OptimizerConfig&) {},
      [](config::OptimizerConfig& c) { c.soap_shampoo_beta = 0.5; },
      [](config::OptimizerConfig& c) { c.soap_precondition_frequency = 1; },
      [](config::OptimizerConfig& c) { c.adam_beta1 = 0.5; },
      [](config::OptimizerConfig& c) { c.adam_beta2 = 0.5; },
      [](config::OptimizerConfig& c) { c.adam_eps = 1e-2; }};
  const PrecisionPolicy policy = precision_policy("fp64");
  const WholeTensors usual = state_after({}, policy, soap_config(), kSteps);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    config::OptimizerConfig config = soap_config();
    changes[i](config);
    const WholeTensors state = state_after({}, policy, config, kSteps);
    EXPECT_LT(worst_deviation(state, config), 1e-8) << "change " << i;
    EXPECT_EQ(state.at("main_param/proj").equal(usual.at("main_param/proj")), i == 0);
  }
}

// Whole matrices on every rank: what is not sharded alike is computed alike.
TEST(Soap, EveryLayoutGivesTheSame) {
  const PrecisionPolicy policy = precision_policy("fp64");
  const WholeTensors alone = state_after({}, policy, soap_config(), kSteps);
  for (const Layout& layout :
       {Layout{.tp = 2}, Layout{.dp = 2}, Layout{.dp = 2, .sharding = Sharding::kOptimizer},
        Layout{.dp = 3, .sharding = Sharding::kOptimizer},
        Layout{.tp = 2, .dp = 2, .sharding = Sharding::kGradients},
        Layout{.tp = 2, .dp = 2, .sharding = Sharding::kParameters},
        Layout{.tp = 2, .on_host = true}}) {
    EXPECT_EQ(difference(state_after(layout, policy, soap_config(), kSteps), alone), 0.0) << layout;
  }
}

TEST(Soap, ResumesBitForBit) {
  const PrecisionPolicy policy = precision_policy("fp32");
  const WholeTensors straight = state_after({}, policy, soap_config(), kSteps);
  WholeTensors half =
      state_after({.dp = 2, .sharding = Sharding::kOptimizer}, policy, soap_config(), 3);
  for (const Layout& layout : {Layout{}, Layout{.tp = 2}}) {
    WholeTensors resumed;
    std::mutex mutex;
    comm::run_threads({.world_size = layout.world()}, [&](comm::Backend& backend) {
      Rig rig(backend, layout, policy, soap_config());
      {
        const std::lock_guard lock(mutex);
        copy_state(*rig.optimizer, /*owner_only=*/false, half, /*out=*/true);
      }
      rig.optimizer->set_num_updates(3);
      rig.optimizer->refresh_parameters();
      rig.train(3, kSteps);
      const std::lock_guard lock(mutex);
      copy_state(*rig.optimizer, /*owner_only=*/true, resumed, /*out=*/false);
    });
    EXPECT_EQ(difference(resumed, straight), 0.0) << layout;
  }
}

TEST(Soap, ASkippedStepChangesNothing) {
  EXPECT_EQ(change_by_skipped_step(precision_policy("fp32"), soap_config(), 2), 0.0);
}

TEST(Soap, StartsAnewFromParameters) {
  const auto backend = comm::make_single_backend();
  Rig rig(*backend, {}, precision_policy("fp32"), soap_config());
  rig.train(0, 2);
  rig.optimizer->reset_from_parameters();
  WholeTensors after;
  copy_state(*rig.optimizer, true, after, false);
  EXPECT_EQ(after.at("soap_left/proj").abs().max().item<double>(), 0.0);
}

TEST(Soap, StateIsWhatThePlanSays) {
  const auto backend = comm::make_single_backend();
  Rig rig(*backend, {}, precision_policy("fp32"), soap_config());
  WholeTensors state;
  copy_state(*rig.optimizer, true, state, false);
  std::int64_t elements = 0;
  for (const char* kind :
       {"exp_avg_sq/", "soap_left/", "soap_right/", "soap_left_basis/", "soap_right_basis/"}) {
    elements += state.at(kind + std::string("qkv.q")).numel();
  }
  EXPECT_EQ(soap_elements(8, 6), elements);
  EXPECT_EQ(soap_elements(kMaxPreconditionedSide + 1, 2),
            2 * (kMaxPreconditionedSide + 1) + 2 * 2 * 2);
}

TEST(Soap, RefusesAStoreCutByElements) { EXPECT_FALSE(takes_cut_by_elements(soap_config())); }

TEST(LinearAlgebra, EigenvectorsDescendAndColumnsAreOrthonormal) {
  const Tensor x = whole_values("x", {7, 7}, 1);
  const Tensor a = x.matmul(x.t());
  const Tensor basis = tensor::eigenvectors(a);
  const Tensor diagonal = basis.t().matmul(a).matmul(basis);
  const Tensor values = diagonal.diagonal();
  EXPECT_LT(diagonal.sub(values.diag()).abs().max().item<double>(), 1e-10);
  EXPECT_TRUE(values.narrow(0, 1, 6).le(values.narrow(0, 0, 6)).all().item<bool>());
  const Tensor q = tensor::orthogonal_factor(whole_values("y", {7, 4}, 2));
  const Tensor off = q.t().matmul(q).sub(tensor::ones({4}, DType::Double).diag());
  EXPECT_LT(off.abs().max().item<double>(), 1e-12);
}

}  // namespace
}  // namespace pentatron::optimizer
