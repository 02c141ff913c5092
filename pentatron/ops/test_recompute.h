// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "pentatron/ops/backward.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/saved.h"

// Backward inside backward, on either implementation.
namespace pentatron::ops::testing {

// A block whose forward runs again inside its backward, as recomputation does.
class AgainBackward final : public Backward {
 public:
  using Body = std::function<Tensor(const Tensor&)>;
  AgainBackward(const Tensor& x, Body body) : x_(x), body_(std::move(body)) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const tensor::EnableGrad records;
    const Tensor x = x_.get().detach().requires_grad_(true);
    run_backward(body_(x), output_grads[0]);
    return {x.grad()};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return "Again"; }

  static Tensor run(const Tensor& x, const Body& body) {
    Tensor y;
    {
      const tensor::NoGrad no_grad;
      y = body(x.detach());
    }
    return attach(std::move(y), {x}, std::make_unique<AgainBackward>(x, body));
  }

 private:
  Saved x_;
  Body body_;
};

// Gradients of x and of one weight that every block uses, through blocks of plain library ops and
// an op of ours; the innermost `nested` of three levels run again in backward.
inline std::pair<Tensor, Tensor> nested_gradients(Device device, int nested) {
  TestWeight weight(normal({4, 4}, 2, DType::Double, 0.5).to(device));
  const Tensor x = leaf(normal({6, 4}, 1).to(device));
  AgainBackward::Body body = [&](const Tensor& in) {
    return linear(in.tanh(), weight, nullptr, {}).add(in);
  };
  for (int level = 0; level < 3; ++level) {
    const AgainBackward::Body inner = body;
    if (level < nested) {
      body = [inner](const Tensor& in) {
        return AgainBackward::run(AgainBackward::run(in, inner).mul(0.7), inner);
      };
    } else {
      body = [inner](const Tensor& in) { return inner(inner(in).mul(0.7)); };
    }
  }
  run_backward(body(x), normal({6, 4}, 3).to(device));
  EXPECT_TRUE(tensor::grad_enabled());
  EXPECT_EQ(weight.writes(), 8);
  return {x.grad(), weight.grad()};
}

inline void expect_nested_backward(Device device) {
  const auto [dx, dw] = nested_gradients(device, 0);
  for (int nested = 1; nested <= 3; ++nested) {
    const auto [nested_dx, nested_dw] = nested_gradients(device, nested);
    EXPECT_TRUE(bit_equal(nested_dx, dx)) << nested << " levels";
    EXPECT_TRUE(bit_equal(nested_dw, dw)) << nested << " levels";
  }
}

}  // namespace pentatron::ops::testing
