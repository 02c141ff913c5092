// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/unit_event_fan_out.h"

#include <gtest/gtest.h>

#include <string>

#include "pentatron/ops/backward.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

class Log final : public UnitEventSink {
 public:
  Log(std::string name, std::string& events) : name_(std::move(name)), events_(events) {}
  void on_forward_begin(int unit) override { note("F", unit); }
  void on_forward_end(int unit) override { note("f", unit); }
  void on_backward_begin(int unit) override { note("B", unit); }
  void on_backward_end(int unit) override { note("b", unit); }

 private:
  void note(const char* event, int unit) { events_ += name_ + event + std::to_string(unit) + " "; }
  std::string name_;
  std::string& events_;
};

TEST(UnitEventFanOut, TellsAllSubscribersEveryEventInOrder) {
  std::string events;
  Log first("x", events);
  Log second("y", events);
  UnitEventFanOut both;
  both.add(first);
  both.add(second);
  const tensor::EnableGrad with_grad;
  const Tensor x = tensor::ones({2}, DType::Double).requires_grad_(true);
  const Tensor inside = unit_begin({x}, 4, both).at(0).mul(3.0);
  const Tensor y = unit_end({inside}, 4, both).at(0);
  run_backward(y, tensor::ones({2}, DType::Double));
  EXPECT_EQ(events, "xF4 yF4 xf4 yf4 xB4 yB4 xb4 yb4 ");
  EXPECT_EQ(x.grad().sum().item<double>(), 6.0);
}

}  // namespace
}  // namespace pentatron::ops
