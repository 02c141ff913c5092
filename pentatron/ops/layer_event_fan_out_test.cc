// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/layer_event_fan_out.h"

#include <gtest/gtest.h>

#include <string>

#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

class Log final : public LayerEventSink {
 public:
  Log(std::string name, std::string& events) : name_(std::move(name)), events_(events) {}
  void on_forward_begin(int layer) override { note("F", layer); }
  void on_forward_end(int layer) override { note("f", layer); }
  void on_backward_begin(int layer) override { note("B", layer); }
  void on_backward_end(int layer) override { note("b", layer); }

 private:
  void note(const char* event, int layer) {
    events_ += name_ + event + std::to_string(layer) + " ";
  }
  std::string name_;
  std::string& events_;
};

TEST(LayerEventFanOut, TellsAllSubscribersEveryEventInOrder) {
  std::string events;
  Log first("x", events);
  Log second("y", events);
  LayerEventFanOut both;
  both.add(first);
  both.add(second);
  const tensor::EnableGrad with_grad;
  const Tensor x = tensor::ones({2}, DType::Double).requires_grad_(true);
  const Tensor y = layer_end(layer_begin(x, 4, both).mul(3.0), 4, both);
  run_backward(y, tensor::ones({2}, DType::Double));
  EXPECT_EQ(events, "xF4 yF4 xf4 yf4 xB4 yB4 xb4 yb4 ");
  EXPECT_EQ(x.grad().sum().item<double>(), 6.0);
}

}  // namespace
}  // namespace pentatron::ops
