// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/unit_events.h"

#include <string>

#include "pentatron/base/error.h"
#include "pentatron/ops/activation.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/testing.h"

namespace pentatron::ops {
namespace {

using testing::normal;
using testing::TestWeight;

class EventLog final : public UnitEventSink {
 public:
  void on_forward_begin(int unit) override { add("fb", unit); }
  void on_forward_end(int unit) override { add("fe", unit); }
  void on_backward_begin(int unit) override { add("bb", unit); }
  void on_backward_end(int unit) override { add("be", unit); }
  std::string text;

 private:
  void add(const char* what, int unit) { text += std::string(what) + std::to_string(unit) + ' '; }
};

TEST(UnitEvents, ComeInExactOrder) {
  EventLog log;
  TestWeight weight(normal({4, 4}, 1));
  for (const bool input_learns : {true, false}) {
    log.text.clear();
    Tensor x = normal({3, 4}, 2).set_requires_grad(input_learns);
    for (int unit = 0; unit < 3; ++unit) {
      x = unit_begin({x}, unit, log).at(0);
      x = x.add(gelu_tanh(linear(x, weight, nullptr, {})));
      x = unit_end({x}, unit, log).at(0);
    }
    run_backward(x, normal({3, 4}, 3));
    EXPECT_EQ(log.text, "fb0 fe0 fb1 fe1 fb2 fe2 bb2 be2 bb1 be1 bb0 be0 ");
  }
  log.text.clear();
  const tensor::NoGrad no_grad;
  EXPECT_FALSE(unit_end(unit_begin({normal({2, 4}, 2)}, 5, log), 5, log).at(0).requires_grad());
  EXPECT_EQ(log.text, "fb5 fe5 ");
}

// A residual and a delta cross the border: the unit begins its backward once, when both gradients
// are there, and ends it once, when both inputs have theirs.
TEST(UnitEvents, FireOnceForSeveralTensors) {
  EventLog log;
  const Tensor a = normal({2, 3}, 1).set_requires_grad(true);
  const Tensor b = normal({4}, 2).set_requires_grad(true);
  std::vector<Tensor> inside = unit_begin({a, b}, 0, log);
  const std::vector<Tensor> outside = unit_end({inside[0].mul(2.0), inside[1].mul(5.0)}, 0, log);
  const Tensor y = outside[0].sum().add(outside[1].sum());
  run_backward(y, tensor::scalar(1.0, y.scalar_type()));
  EXPECT_EQ(log.text, "fb0 fe0 bb0 be0 ");
  EXPECT_EQ(a.grad().sum().item<double>(), 12.0);
  EXPECT_EQ(b.grad().sum().item<double>(), 20.0);
  EXPECT_THROW((void)unit_begin({}, 0, log), Error);
}

}  // namespace
}  // namespace pentatron::ops
