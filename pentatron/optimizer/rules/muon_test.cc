// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <mutex>

#include "pentatron/base/error.h"
#include "pentatron/comm/faulty_backend.h"
#include "pentatron/optimizer/rules/test_support.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
using distributed::Piece;
using distributed::Sharding;
using nn::ShardRole;

config::OptimizerConfig muon_config() {
  config::OptimizerConfig c;
  c.optimizer = "muon";
  c.clip_grad = 0;
  return c;
}

constexpr int kSteps = 3;
constexpr double kLr = 0.02;
constexpr double kDecay = 0.1;

// The polynomial of every iteration, on singular values.
Tensor orthogonal_factor(const Tensor& x, const config::OptimizerConfig& c) {
  auto [u, s, v] = x.svd();
  s = s.div(s.square().sum().sqrt());
  for (const NewtonSchulzStep& step :
       newton_schulz_steps(c.muon_coefficient_type, c.muon_num_ns_steps)) {
    s = s.mul(step.a).add(s.pow(3), step.b).add(s.pow(5), step.c);
  }
  return u.mul(s).matmul(v.t());
}

double scale_of(const std::string& mode, double rows, double columns) {
  if (mode == "spectral") return std::sqrt(std::max(rows, columns));
  return mode == "unit_rms_norm" ? std::sqrt(rows / columns)
                                 : std::sqrt(std::max(1.0, rows / columns));
}

// The same steps on whole tensors, from the definition, with the orthogonal factor by singular
// values.
std::map<std::string, Tensor> reference(const config::OptimizerConfig& c) {
  std::map<std::string, Tensor> p, m, v;
  for (const auto& rules : weights()) {
    for (const Rule& rule : rules) {
      p[rule.name] = whole_values(rule.name, rule.shape, 0);
      m[rule.name] = tensor::zeros(rule.shape, DType::Double);
      v[rule.name] = tensor::zeros(rule.shape, DType::Double);
    }
  }
  for (int step = 1; step <= kSteps; ++step) {
    for (const auto& rules : weights()) {
      std::vector<std::vector<Rule>> matrices;
      const bool split = c.muon_split_qkv && rules[0].role == ShardRole::kQkv;
      for (const Rule& rule : rules) {
        if (matrices.empty() || split) matrices.push_back({});
        matrices.back().push_back(rule);
      }
      for (const std::vector<Rule>& matrix : matrices) {
        std::vector<Tensor> directions;
        double rows = 0;
        for (const Rule& rule : matrix) {
          const Tensor g = whole_values(rule.name, rule.shape, step);
          Tensor& first = m[rule.name];
          if (rule.role != ShardRole::kMatrix && rule.role != ShardRole::kQkv) {
            Tensor& second = v[rule.name];
            first = first.mul(0.9).add(g.mul(0.1));
            second = second.mul(0.999).add(g.square().mul(0.001));
            const Tensor update = first.div(1 - std::pow(0.9, step))
                                      .div(second.div(1 - std::pow(0.999, step)).sqrt().add(1e-8));
            const double decay = rule.role == ShardRole::kVector ? 0 : kDecay;
            Tensor& value = p[rule.name];
            value = value.sub(update.add(value.mul(decay)).mul(kLr));
            continue;
          }
          first = first.mul(c.muon_momentum).add(g.mul(1 - c.muon_momentum));
          directions.push_back(
              c.muon_nesterov ? g.mul(1 - c.muon_momentum).add(first.mul(c.muon_momentum)) : first);
          rows += static_cast<double>(rule.shape[0]);
        }
        if (directions.empty()) continue;
        const Tensor joined = tensor::cat(directions, 0);
        const Tensor update = orthogonal_factor(joined, c).mul(
            scale_of(c.muon_scale_mode, rows, static_cast<double>(joined.size(1))) *
            c.muon_extra_scale_factor);
        std::int64_t row = 0;
        for (const Rule& rule : matrix) {
          Tensor& value = p[rule.name];
          value = value.mul(1 - kLr * kDecay).sub(update.narrow(0, row, rule.shape[0]).mul(kLr));
          row += rule.shape[0];
        }
      }
    }
  }
  return p;
}

// Largest deviation from the reference over all ranks and weights.
double worst_deviation(const Layout& layout, const config::OptimizerConfig& config,
                       const comm::testing_support::Fault& fault = {.group = "no such group"}) {
  const std::map<std::string, Tensor> expected = reference(config);
  double worst = 0;
  std::mutex mutex;
  comm::run_threads({.world_size = layout.tp * layout.dp}, [&](comm::Backend& real) {
    comm::testing_support::FaultyBackend backend(real, fault);
    comm::ParallelContext context(backend, make_grid(layout));
    const PrecisionPolicy policy = precision_policy("fp64");
    Model model(context, policy);
    distributed::ParameterStore store(model.units, context,
                                      {.sharding = layout.sharding,
                                       .cut = distributed::ShardCut::kMatrices,
                                       .bucket_bytes = 300,
                                       .state_on_host = layout.on_host},
                                      policy);
    store.fill([](nn::Parameter& parameter) {
      for (const nn::ShardPart& part : parameter.spec().parts) {
        nn::part_view(parameter.data(), part)
            .copy_(in_box(whole_values(part.name, part.logical_shape, 0), part.box));
      }
    });
    Optimizer optimizer(store, context, config, policy);
    for (int step = 1; step <= kSteps; ++step) {
      for (Piece& piece : store.pieces()) {
        const Tensor g = in_box(whole_values(piece.part->name, piece.part->logical_shape, step),
                                piece.part->box);
        piece.grad.copy_(g.reshape({-1}).narrow(0, piece.box_begin, piece.length()));
      }
      (void)optimizer.step(kLr, kDecay);
    }
    double deviation = 0;
    for (auto& parameter : model.parameters) {
      for (const nn::ShardPart& part : parameter->spec().parts) {
        const Tensor found = nn::part_view(parameter->data(), part);
        deviation = std::max(
            deviation,
            found.sub(in_box(expected.at(part.name), part.box)).abs().max().item<double>());
      }
    }
    const std::lock_guard lock(mutex);
    worst = std::max(worst, deviation);
  });
  return worst;
}

TEST(Muon, EveryLayoutEqualsTheDefinition) {
  for (const Layout& layout :
       {Layout{}, Layout{.tp = 2}, Layout{.dp = 2},
        Layout{.dp = 2, .sharding = Sharding::kOptimizer},
        Layout{.dp = 3, .sharding = Sharding::kOptimizer},
        Layout{.tp = 2, .dp = 2, .sharding = Sharding::kOptimizer},
        Layout{.tp = 2, .dp = 2, .sharding = Sharding::kGradients},
        Layout{.dp = 2, .sharding = Sharding::kParameters}, Layout{.tp = 2, .on_host = true}}) {
    EXPECT_LT(worst_deviation(layout, muon_config()), 1e-12)
        << "tp " << layout.tp << " dp " << layout.dp << " sharding "
        << static_cast<int>(layout.sharding);
  }
  // The parts of the other ranks count.
  EXPECT_GT(worst_deviation({.tp = 2}, muon_config(), {.group = "/tp:"}), 1e-6);
}

TEST(Muon, EveryOptionChangesTheUpdate) {
  const std::map<std::string, Tensor> usual = reference(muon_config());
  const std::vector<std::function<void(config::OptimizerConfig&)>> changes = {
      [](config::OptimizerConfig& c) { c.muon_momentum = 0.5; },
      [](config::OptimizerConfig& c) { c.muon_num_ns_steps = 7; },
      [](config::OptimizerConfig& c) { c.muon_coefficient_type = "simple"; },
      [](config::OptimizerConfig& c) { c.muon_scale_mode = "unit_rms_norm"; },
      [](config::OptimizerConfig& c) { c.muon_scale_mode = "shape_scaling"; },
      [](config::OptimizerConfig& c) { c.muon_extra_scale_factor = 0.2; },
      [](config::OptimizerConfig& c) { c.muon_nesterov = true; },
      [](config::OptimizerConfig& c) { c.muon_split_qkv = false; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    config::OptimizerConfig config = muon_config();
    changes[i](config);
    EXPECT_GT(reference(config).at("qkv.q").sub(usual.at("qkv.q")).abs().max().item<double>(), 1e-4)
        << "change " << i;
    EXPECT_LT(worst_deviation({.tp = 2}, config), 1e-12) << "change " << i;
  }
}

TEST(Muon, OrthogonaliseBringsSingularValuesNearOne) {
  for (const Shape& shape : {Shape{12, 40}, Shape{40, 12}, Shape{16, 16}}) {
    const Tensor x = whole_values("x", shape, 3).mul(1e-3);
    for (const char* type : {"simple", "quintic"}) {
      const Tensor y = orthogonalise(x, newton_schulz_steps(type, 10));
      const auto [u, s, v] = y.svd();
      EXPECT_GT(s.min().item<double>(), 0.6) << type;
      EXPECT_LT(s.max().item<double>(), 1.4) << type;
    }
  }
  const std::vector<NewtonSchulzStep> steps = newton_schulz_steps("quintic", 7);
  ASSERT_EQ(steps.size(), 7U);
  EXPECT_EQ(steps[5].a, steps[0].a) << "begun again";
  EXPECT_EQ(orthogonalise(tensor::zeros({3, 4}, DType::Float), steps).abs().max().item<float>(), 0)
      << "no gradient";
  EXPECT_THROW((void)newton_schulz_steps("cubic", 5), Error);
}

TEST(Muon, ASkippedStepChangesNothing) {
  const auto backend = comm::make_single_backend();
  comm::ParallelContext context(*backend, make_grid({}));
  const PrecisionPolicy policy = precision_policy("fp32");
  Model model(context, policy);
  distributed::ParameterStore store(model.units, context, {.cut = distributed::ShardCut::kMatrices},
                                    policy);
  store.fill([](nn::Parameter& parameter) { parameter.data().fill_(0.25); });
  Optimizer optimizer(store, context, muon_config(), policy);
  for (Piece& piece : store.pieces()) piece.grad.fill_(std::nan(""));
  EXPECT_TRUE(optimizer.step(kLr, kDecay).skipped);
  for (const Piece& piece : store.pieces()) {
    EXPECT_EQ(piece.main.min().item<float>(), 0.25);
    EXPECT_EQ(piece.main.max().item<float>(), 0.25);
    for (const Tensor& state : piece.state) EXPECT_EQ(state.abs().max().item<float>(), 0);
  }
}

TEST(Muon, RefusesAStoreCutByElements) { EXPECT_FALSE(takes_cut_by_elements(muon_config())); }

}  // namespace
}  // namespace pentatron::optimizer
