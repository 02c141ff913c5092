// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "pentatron/ops/backward.h"
#include "pentatron/ops/projection.h"

namespace pentatron::ops {

// What the backward of an op that begins with a projection of x holds: the projection, what it
// wants of x, and how x's gradient is to be.
class ProjectionBackward : public Backward {
 public:
  // After the forward. `name` is a constant.
  ProjectionBackward(const Tensor& x, std::unique_ptr<Projection> projection, std::string_view name)
      : projection_(std::move(projection)),
        x_(projection_->save_input(x, name)),
        name_(name),
        needs_dx_(x.requires_grad()),
        dtype_(x.scalar_type()) {}

  void release() override { x_.release(); }
  [[nodiscard]] std::string_view name() const override { return name_; }

 protected:
  // x's gradient (undefined: none is wanted) from that of the projection's output; gradients of
  // the weights go into their queue.
  [[nodiscard]] Tensor input_gradient(const Tensor& dy) {
    return projection_->backward(dy, x_, dtype_, needs_dx_);
  }
  [[nodiscard]] Projection& projection() { return *projection_; }
  [[nodiscard]] DType dtype() const { return dtype_; }  // of x

 private:
  std::unique_ptr<Projection> projection_;
  Saved x_;
  std::string_view name_;
  bool needs_dx_;
  DType dtype_;
};

}  // namespace pentatron::ops
