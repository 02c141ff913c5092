// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/sigmoid_gate.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

constexpr std::string_view kName = "SigmoidGate";

Tensor wide(const Tensor& x) { return tensor::cast(x, compute_dtype(x.scalar_type())); }

class SigmoidGateBackward final : public Backward {
 public:
  SigmoidGateBackward(const Tensor& x, const Tensor& gate, const Scope& scope)
      : x_(scope.save(x, kName)), gate_(scope.save(gate, kName)) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads.at(0).defined()) return {Tensor(), Tensor()};
    const Tensor x = x_.get(), dy = wide(output_grads[0]);
    const Tensor opening = wide(gate_.get()).sigmoid();
    const Tensor dx = dy.mul(opening);
    const Tensor dgate = dx.mul(wide(x)).mul(opening.neg().add(1.0));
    return {tensor::cast(dx, x.scalar_type()), tensor::cast(dgate, x.scalar_type())};
  }
  void release() override {
    x_.release();
    gate_.release();
  }
  std::string_view name() const override { return kName; }

 private:
  Saved x_;
  Saved gate_;
};

Tensor gated(const Tensor& x, const Tensor& gate) {
  const tensor::NoGrad no_grad;
  return tensor::cast(wide(x).mul(wide(gate).sigmoid()), x.scalar_type());
}

}  // namespace

Tensor sigmoid_gate(const Tensor& x, const Tensor& gate, const Scope& scope) {
  PENTATRON_CHECK(x.sizes() == gate.sizes() && x.scalar_type() == gate.scalar_type(), kInternal,
                  "{} cannot be gated by {}", tensor::describe(x), tensor::describe(gate));
  Tensor y = gated(x, gate);
  if (!needs_backward({x, gate})) return y;
  return attach(std::move(y), {x, gate}, std::make_unique<SigmoidGateBackward>(x, gate, scope));
}

}  // namespace pentatron::ops
