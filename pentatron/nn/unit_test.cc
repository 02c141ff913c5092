// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/unit.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/event_test_support.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::nn {
namespace {

std::unique_ptr<Parameter> make_weight(const std::string& name, double value) {
  ShardPart part;
  part.name = name;
  part.logical_shape = {3};
  part.box = {{0}, {3}};
  part.local_rows = 3;
  const PrecisionPolicy policy = precision_policy("fp64");
  auto weight = std::make_unique<Parameter>(name, ShardSpec{{part}, {3}}, policy);
  weight->data().fill_(value);
  weight->bind_grad(tensor::zeros({3}, policy.main_grad));
  return weight;
}

// Notes the events, and at each whether the first unit's gradient was written.
class Recorder final : public ops::testing::EventNotes {
 public:
  explicit Recorder(Parameter& watched) : watched_(watched) {}

 private:
  void note(const char* what, int unit) override {
    text += what + std::to_string(unit) + (watched_.grad_written() ? "! " : " ");
  }
  Parameter& watched_;
};

// A first unit without inputs (y = w), a second with one (z = y * v).
struct TwoUnits {
  std::unique_ptr<Parameter> w = make_weight("w", 2.0);
  std::unique_ptr<Parameter> v = make_weight("v", 5.0);
  std::vector<int> seen;  // step.scope.unit inside the bodies

  Tensor forward(StepContext& step) {
    const Tensor y = run_unit(0, Tensor(), step, [this](const Tensor& none, StepContext& inner) {
      EXPECT_FALSE(none.defined());
      seen.push_back(inner.scope.unit);
      return ops::as_graph_tensor(*w).mul(1.0);
    });
    return run_unit(1, y, step, [this](const Tensor& x, StepContext& inner) {
      seen.push_back(inner.scope.unit);
      return x.mul(ops::as_graph_tensor(*v));
    });
  }
};

TEST(Unit, EventsStandAtItsBordersWithAndWithoutInputs) {
  const Batch batch;
  const PrecisionPolicy policy = precision_policy("fp64");
  TwoUnits model;
  Recorder events(*model.w);
  StepContext step{.batch = batch, .policy = policy, .events = &events, .first_unit = 7};
  step.scope.unit = 3;
  const tensor::EnableGrad with_grad;
  const Tensor z = model.forward(step);
  EXPECT_EQ(events.text, "fb7 fe7 fb8 fe8 ");
  EXPECT_EQ(model.seen, (std::vector<int>{7, 8}));
  EXPECT_EQ(step.scope.unit, 3);
  events.text.clear();
  ops::run_backward(z, tensor::ones({3}, DType::Double));
  EXPECT_EQ(events.text, "bb8 be8 bb7 be7! ") << "the first unit ends when its gradient is written";
  EXPECT_EQ(model.w->main_grad().sum().item<double>(), 15.0);
  EXPECT_EQ(model.v->main_grad().sum().item<double>(), 6.0);
}

TEST(Unit, WithoutASinkOrWithoutGradientsNothingIsRecorded) {
  const Batch batch;
  const PrecisionPolicy policy = precision_policy("fp64");
  TwoUnits model;
  Recorder events(*model.w);
  {
    const tensor::NoGrad no_grad;
    StepContext step{.batch = batch, .policy = policy, .events = &events};
    EXPECT_FALSE(model.forward(step).requires_grad());
    EXPECT_EQ(events.text, "fb0 fe0 fb1 fe1 ");
  }
  const tensor::EnableGrad with_grad;
  StepContext step{.batch = batch, .policy = policy};
  ops::run_backward(model.forward(step), tensor::ones({3}, DType::Double));
  EXPECT_EQ(events.text, "fb0 fe0 fb1 fe1 ");
  EXPECT_EQ(model.w->main_grad().sum().item<double>(), 15.0);
}

// Frozen: no gradient flows into the first unit, and its events still come, as on every other rank.
TEST(Unit, EventsComeWhereNothingLearns) {
  const Batch batch;
  const PrecisionPolicy policy = precision_policy("fp64");
  TwoUnits model;
  model.w->set_trainable(false);
  Recorder events(*model.w);
  StepContext step{.batch = batch, .policy = policy, .events = &events};
  const tensor::EnableGrad with_grad;
  ops::run_backward(model.forward(step), tensor::ones({3}, DType::Double));
  EXPECT_EQ(events.text, "fb0 fe0 fb1 fe1 bb1 be1 bb0 be0 ");
}

TEST(Unit, ABodyThatFailsLeavesTheStepAsItWas) {
  const Batch batch;
  const PrecisionPolicy policy = precision_policy("fp64");
  StepContext step{.batch = batch, .policy = policy};
  step.scope.unit = 4;
  const auto fails = [](const Tensor&, StepContext&) -> Tensor {
    PENTATRON_THROW(kData, "planted");
  };
  EXPECT_THROW((void)run_unit(2, Tensor(), step, fails), Error);
  EXPECT_EQ(step.scope.unit, 4);
}

}  // namespace
}  // namespace pentatron::nn
