// SPDX-License-Identifier: Apache-2.0
// Backward on the calling thread against the library's engine.
#include "pentatron/ops/graph_runner.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/test_recompute.h"

namespace pentatron::ops {
namespace {

namespace autograd = torch::autograd;
using namespace testing;  // NOLINT: test vocabulary

autograd::Edge edge_of(const Tensor& t) { return autograd::impl::gradient_edge(t); }

// A graph in which tensors are used several times, as views, broadcast and as both operands.
struct Tangle {
  Tensor x = leaf(normal({6, 4}, 1)), w = leaf(normal({4, 4}, 2)), b = leaf(normal({4}, 3));
  Tensor loss, side;

  Tangle() {
    const Tensor h = x.matmul(w).add(b);
    const Tensor gated = h.mul(h.sigmoid()).add(x);
    const Tensor left = gated.narrow(1, 0, 2), right = gated.narrow(1, 2, 2);
    const Tensor mixed = left.mul(right).add(left).matmul(w.narrow(0, 0, 2));
    side = mixed.view({4, 6}).sin();
    loss = side.sum().add(gated.mul(b).sum());
  }
};

TEST(GraphRunner, GivesTheEnginesBits) {
  Tangle ours, theirs;
  const Tensor seed = tensor::scalar(0.7, DType::Double), side_seed = normal({4, 6}, 9);
  run_graph({edge_of(ours.loss), edge_of(ours.side)}, {seed, side_seed});
  autograd::Engine::get_default_engine().execute({edge_of(theirs.loss), edge_of(theirs.side)},
                                                 {seed, side_seed}, false, false, true);
  EXPECT_TRUE(bit_equal(ours.x.grad(), theirs.x.grad()));
  EXPECT_TRUE(bit_equal(ours.w.grad(), theirs.w.grad()));
  EXPECT_TRUE(bit_equal(ours.b.grad(), theirs.b.grad()));
  EXPECT_FALSE(ours.x.grad().requires_grad());
  EXPECT_TRUE(c10::GradMode::is_enabled());
}

TEST(GraphRunner, AddsToLeavesThatHaveAGradient) {
  const Tensor x = leaf(normal({3}, 1));
  for (int time = 1; time <= 2; ++time) {
    const Tensor y = x.mul(2).sum();
    run_graph({edge_of(y)}, {tensor::scalar(1.0, DType::Double)});
    EXPECT_EQ(x.grad().sum().item<double>(), 6.0 * time);
  }
}

TEST(GraphRunner, LeavesTheCallersGradientAlone) {
  const Tensor x = leaf(normal({3}, 1));
  const Tensor seed = tensor::ones({3}, DType::Double);
  const Tensor y = x.add(x).add(x);  // the same gradient arrives three times
  run_graph({edge_of(y), edge_of(y)}, {seed, seed});
  EXPECT_EQ(seed.sum().item<double>(), 3.0);
  EXPECT_EQ(x.grad().sum().item<double>(), 18.0);
}

TEST(GraphRunner, CallsHooksWhereTheEngineDoes) {
  const auto run = [](bool ours) {
    const Tensor x = leaf(normal({3}, 1));
    const Tensor h = x.mul(2);
    std::string seen;
    h.register_hook([&](const Tensor& grad) {
      seen += "h";
      return grad.mul(10);
    });
    x.register_hook(
        [&](const Tensor& grad) { seen += "x" + std::to_string(grad.sum().item<double>()); });
    h.retain_grad();
    const Tensor y = h.mul(3).sum();
    const Tensor seed = tensor::scalar(1.0, DType::Double);
    if (ours) {
      run_graph({edge_of(y)}, {seed});
    } else {
      autograd::Engine::get_default_engine().execute({edge_of(y)}, {seed}, false, false, true);
    }
    return std::tuple{seen, x.grad().sum().item<double>(), h.grad().sum().item<double>()};
  };
  const auto [seen, dx, dh] = run(true);
  EXPECT_EQ(dx, 180.0);
  EXPECT_EQ(dh, 90.0);
  EXPECT_EQ(run(false), (std::tuple{seen, dx, dh}));
}

// Passes a gradient on as `to`, or throws, and says when it ran.
class NotedBackward final : public Backward {
 public:
  NotedBackward(int number, std::vector<int>& order, DType to, bool throws)
      : number_(number), order_(&order), to_(to), throws_(throws) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    PENTATRON_CHECK(!throws_, kData, "node {} fails", number_);
    order_->push_back(number_);
    return {output_grads[0].to(to_)};
  }
  void release() override {}
  std::string_view name() const override { return "Noted"; }

 private:
  int number_;
  std::vector<int>* order_;
  DType to_;
  bool throws_;
};
Tensor noted(const Tensor& x, int number, std::vector<int>& order, DType to = DType::Double,
             bool throws = false) {
  return attach(x.detach().clone(), {x},
                std::make_unique<NotedBackward>(number, order, to, throws));
}

TEST(GraphRunner, WhatWasRecordedLastGoesFirst) {
  std::vector<int> order;
  const Tensor x = leaf(normal({3}, 1));
  const Tensor a = noted(x, 1, order), b = noted(x, 2, order);
  const Tensor c = noted(b, 3, order), d = noted(a, 4, order);
  const Tensor y = c.add(d);
  run_graph({edge_of(y)}, {tensor::ones({3}, DType::Double)});
  EXPECT_EQ(order, (std::vector<int>{4, 3, 2, 1}));
}

TEST(GraphRunner, GradientsTakeTheRecordedDtype) {
  std::vector<int> order;
  const Tensor x = leaf(normal({3}, 1));
  const Tensor y = noted(x, 1, order, DType::Float);
  run_graph({edge_of(y)}, {tensor::ones({3}, DType::Double)});
  EXPECT_EQ(x.grad().scalar_type(), DType::Double);
}

TEST(GraphRunner, AGradientOfAnotherShapeIsRefused) {
  const Tensor x = leaf(normal({3}, 1));
  const Tensor y = x.mul(2);
  EXPECT_ANY_THROW(run_graph({edge_of(y)}, {tensor::ones({4}, DType::Double)}));
}

TEST(GraphRunner, AnErrorComesThroughAndLeavesTheThreadInOrder) {
  std::vector<int> order;
  const Tensor x = leaf(normal({3}, 1));
  const Tensor bad = noted(noted(x, 1, order), 2, order, DType::Double, /*throws=*/true);
  try {
    run_graph({edge_of(bad)}, {tensor::ones({3}, DType::Double)});
    FAIL() << "no error came";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
  }
  EXPECT_TRUE(c10::GradMode::is_enabled());
  EXPECT_TRUE(order.empty());
  const Tensor good = noted(x, 3, order);
  run_graph({edge_of(good)}, {tensor::ones({3}, DType::Double)});
  EXPECT_EQ(order, std::vector<int>{3});
}

TEST(GraphRunner, RunsInsideItself) { testing::expect_nested_backward(kCpu); }

}  // namespace
}  // namespace pentatron::ops
