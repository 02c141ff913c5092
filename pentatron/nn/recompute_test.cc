// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/recompute.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/ops/activation.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/unit_events.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::nn {
namespace {

constexpr std::int64_t kRows = 64;
constexpr std::int64_t kWidth = 32;
constexpr int kLayers = 6;

Tensor values(const Shape& shape, double phase) {
  return tensor::arange(tensor::num_elements(shape), DType::Double)
      .mul(0.37)
      .add(phase)
      .sin()
      .to(DType::Float)
      .view(shape);
}

class Recorder final : public ops::UnitEventSink {
 public:
  void on_forward_begin(int unit) override { text += "f" + std::to_string(unit) + " "; }
  void on_backward_begin(int unit) override { text += "b" + std::to_string(unit) + " "; }
  void on_backward_end(int unit) override { text += "e" + std::to_string(unit) + " "; }
  std::string text;
};

// x <- x + gelu(x W^T), each a unit; the residual makes gradients meet, so their order counts.
struct Stack {
  Stack() : policy(precision_policy("fp32")) {
    for (int i = 0; i < kLayers; ++i) {
      ShardPart part;
      part.name = "w" + std::to_string(i);
      part.logical_shape = {kWidth, kWidth};
      part.box = {{0, 0}, {kWidth, kWidth}};
      part.local_rows = kWidth;
      weights.push_back(
          std::make_unique<Parameter>(part.name, ShardSpec{{part}, {kWidth, kWidth}}, policy));
      weights.back()->data().copy_(values({kWidth, kWidth}, i).mul(0.2));
      weights.back()->bind_grad(tensor::zeros({kWidth, kWidth}, policy.main_grad));
    }
  }
  Tensor layer(int number, const Tensor& x, StepContext& outer) {
    return run_unit(number, x, outer, [this, number](const Tensor& in, StepContext& step) {
      phases += step.phase == Phase::kRecompute ? 'r' : 't';
      units.push_back(step.scope.unit);
      Parameter& weight = *weights[static_cast<std::size_t>(number)];
      return in.add(ops::gelu_tanh(ops::linear(in, weight, nullptr, {})));
    });
  }
  // In runs of `segment` layers that are recomputed; 0: none is.
  Tensor forward(const Tensor& x, int segment, StepContext& step) {
    Tensor h = x;
    for (int begin = 0; begin < kLayers; begin += std::max(1, segment)) {
      h = recomputed(segment > 0, h, step, [=, this](const Tensor& in, StepContext& inner) {
        Tensor y = in;
        for (int i = begin; i < begin + std::max(1, segment); ++i) y = layer(i, y, inner);
        return y;
      });
    }
    return h;
  }
  // Output, input gradient, weight gradients.
  std::vector<Tensor> run(int segment, bool input_learns = true) {
    for (auto& weight : weights) weight->begin_step();
    const Batch batch;
    StepContext step{.batch = batch, .policy = policy, .events = &events, .first_unit = 2};
    const tensor::EnableGrad with_grad;
    Tensor x = values({kRows, kWidth}, 0.5).requires_grad_(input_learns);
    Tensor y = forward(x, segment, step);
    std::vector<Tensor> all{y.detach().clone()};
    ops::run_backward(y, values({kRows, kWidth}, 2.5));
    all.push_back(input_learns ? x.grad() : Tensor());
    for (auto& weight : weights) all.push_back(weight->main_grad().clone());
    return all;
  }

  PrecisionPolicy policy;
  std::vector<std::unique_ptr<Parameter>> weights;
  std::string phases;
  std::vector<int> units;
  Recorder events;
};

TEST(Recompute, GradientsHaveTheBitsOfARunThatKeepsAll) {
  for (const bool input_learns : {true, false}) {
    Stack stack;
    const std::vector<Tensor> kept = stack.run(0, input_learns);
    EXPECT_EQ(stack.phases, "tttttt");
    for (const int segment : {1, 2, 3, 6}) {
      SCOPED_TRACE(segment);
      stack.phases.clear();
      const std::vector<Tensor> again = stack.run(segment, input_learns);
      EXPECT_EQ(stack.phases, "ttttttrrrrrr");
      for (std::size_t i = 0; i < kept.size(); ++i) {
        ASSERT_EQ(kept[i].defined(), again[i].defined());
        if (kept[i].defined()) EXPECT_TRUE(kept[i].equal(again[i])) << i;
      }
    }
  }
}

TEST(Recompute, UnitsInsideHaveTheirEventsAgain) {
  Stack stack;
  static_cast<void>(stack.run(3));
  EXPECT_EQ(stack.events.text,
            "f2 f3 f4 f5 f6 f7 "
            "f5 f6 f7 b7 e7 b6 e6 b5 e5 "
            "f2 f3 f4 b4 e4 b3 e3 b2 e2 ");
  EXPECT_EQ(stack.units, (std::vector<int>{2, 3, 4, 5, 6, 7, 5, 6, 7, 2, 3, 4}));
}

TEST(Recompute, KeepsTheInputsOnly) {
  Stack stack;
  const Batch batch;
  const auto held = [&](int segment) {
    StepContext step{.batch = batch, .policy = stack.policy};
    const tensor::EnableGrad with_grad;
    const Tensor x = values({kRows, kWidth}, 0.5).requires_grad_(true);
    const tensor::MemoryMeter meter;
    const Tensor y = stack.forward(x, segment, step);
    return meter.current_bytes() / (kRows * kWidth * 4);
  };
  EXPECT_GE(held(0), 2 * kLayers) << "a layer keeps its input and the product";
  EXPECT_EQ(held(1), kLayers) << "each layer's output, the next one's input";
  EXPECT_EQ(held(3), 2);
}

// q and k in, two results out, one of them an input that passes through.
TEST(Recompute, SeveralTensors) {
  const Batch batch;
  const PrecisionPolicy policy = precision_policy("fp64");
  StepContext step{.batch = batch, .policy = policy};
  const tensor::EnableGrad with_grad;
  const Tensor q = tensor::full({3}, 2.0, DType::Double).requires_grad_(true);
  const Tensor k = tensor::full({3}, 5.0, DType::Double).requires_grad_(true);
  const std::vector<Tensor> out =
      recomputed({q, k}, step, [](const std::vector<Tensor>& in, StepContext&) {
        return std::vector<Tensor>{in[0].mul(in[1]), in[1]};
      });
  const Tensor y = out[0].sum().add(out[1].mul(10.0).sum());
  ops::run_backward(y, tensor::scalar(1.0, DType::Double));
  EXPECT_EQ(q.grad().sum().item<double>(), 15.0);
  EXPECT_EQ(k.grad().sum().item<double>(), 36.0);
}

TEST(Recompute, WithoutGradientsTheBodySimplyRuns) {
  Stack stack;
  const Batch batch;
  StepContext step{.batch = batch, .policy = stack.policy, .phase = Phase::kEvaluate};
  const tensor::NoGrad no_grad;
  EXPECT_FALSE(stack.forward(values({kRows, kWidth}, 0.5), 2, step).requires_grad());
  EXPECT_EQ(stack.phases, "tttttt");
  EXPECT_THROW((void)recomputed({}, step, {}), Error);
}

}  // namespace
}  // namespace pentatron::nn
