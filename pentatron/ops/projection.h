// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>
#include <utility>

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
  // What backward wants of x, after forward: nothing where the weight is frozen, and with weight
  // gradients in fp8 what forward has quantised. `op`: who saves.
  [[nodiscard]] Saved save_input(const Tensor& x, std::string_view op);
  // Whether backward sums the output's gradient over rows, and those sums in parts
  // (OpTable::activation_bias_backward) for the next backward, which need not make them then.
  [[nodiscard]] bool sums_bias() const { return trainable_bias() != nullptr; }
  void set_bias_sums(Tensor partials_po) { bias_sums_po_ = std::move(partials_po); }

 protected:
  // `keep_input`: x is what save_input() will be asked for.
  [[nodiscard]] Tensor forward_product(const Tensor& x_ti, WeightRef* bias_o, DType out,
                                       bool keep_input);
  // The output's gradient in the forms that the products of backward read.
  struct OutputGradient {
    Tensor dy_to;
    tensor::Fp8Orders fp8 = {};
  };
  // `needs_dw`: of the weight.
  [[nodiscard]] OutputGradient output_gradient(const Tensor& dy_to, bool needs_dx,
                                               bool needs_dw) const;
  [[nodiscard]] Tensor input_gradient(const OutputGradient& dy, DType out) const;
  // The weight's gradient, as work that outlives this object; `x_ti` gives what save_input() gave,
  // or, with `x_is_whole`, all rows of x in the compute dtype.
  [[nodiscard]] WeightGradQueue::Work weight_grad_work(const OutputGradient& dy,
                                                       std::function<Tensor()> x_ti,
                                                       bool x_is_whole) const;
  // `sums_po`: take_bias_sums().
  static void write_bias_grad(WeightRef& bias_o, const Tensor& dy_to, const Tensor& sums_po);
  [[nodiscard]] Tensor take_bias_sums() { return std::exchange(bias_sums_po_, Tensor()); }

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
  tensor::Fp8Tensor kept_it_;  // x of forward, while the weight's gradient is to read it
  Tensor bias_sums_po_;        // undefined: backward makes them
};

}  // namespace pentatron::ops
