// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/products.h"
#include "pentatron/ops/scope.h"

namespace pentatron::ops {

// A linear map y = x W^T + b as ops use it: the forward product, and a backward that makes the
// input's gradient and queues those of the weights. This one stands on one rank;
// parallel_layers/split_linear.h is split over several. Serves one forward and at most one
// backward.
class Projection {
 public:
  // `bias_o` may be null. The weights outlive the graph.
  Projection(WeightRef& weight_oi, WeightRef* bias_o, const Scope& scope);
  virtual ~Projection() = default;
  Projection(const Projection&) = delete;
  Projection& operator=(const Projection&) = delete;

  // y of x in dtype `out`. Shapes that do not fit: kInternal.
  [[nodiscard]] virtual Tensor forward(const Tensor& x, DType out);
  // From the gradient of y to that of x in dtype `out` (undefined unless `needs_dx`). Gradients of
  // the weights go into the scope's queue. `x`: what save_input() gave.
  [[nodiscard]] virtual Tensor backward(const Tensor& dy, const Saved& x, DType out, bool needs_dx);

  // Whether a weight or the bias learns: then there is a backward whatever x needs.
  [[nodiscard]] bool learns() const { return weight_.trainable() || trainable_bias() != nullptr; }
  // What backward wants of x: nothing where the weight is frozen. `op`: who saves.
  [[nodiscard]] Saved save_input(const Tensor& x, std::string_view op) const;

 protected:
  [[nodiscard]] Tensor forward_product(const Tensor& x_ti, WeightRef* bias_o, DType out) const;
  [[nodiscard]] Tensor input_gradient(const Tensor& dy_to, DType out) const;
  // For the closures that are queued: they outlive this object.
  static void write_weight_grad(WeightRef& weight_oi, const Tensor& dy_to, const Tensor& x_ti);
  static void write_bias_grad(WeightRef& bias_o, const Tensor& dy_to);

  [[nodiscard]] const Scope& scope() const { return scope_; }
  [[nodiscard]] WeightRef& weight() const { return weight_; }
  [[nodiscard]] WeightRef* bias() const { return bias_; }  // null: none
  [[nodiscard]] WeightRef* trainable_bias() const {
    return bias_ != nullptr && bias_->trainable() ? bias_ : nullptr;
  }

 private:
  WeightRef& weight_;
  WeightRef* bias_;
  Scope scope_;
};

}  // namespace pentatron::ops
