// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/tensor.h"

namespace pentatron {

// An activation kept for backward, detached from the graph: the one place where offload,
// compression and sharded saves come in.
class Saved final {
 public:
  Saved() = default;
  explicit Saved(const Tensor& activation);
  // The tensor, without graph. Calling after release() is an internal error.
  [[nodiscard]] Tensor get() const;
  [[nodiscard]] bool defined() const { return tensor_.defined(); }
  void release() { tensor_ = Tensor(); }

 private:
  Tensor tensor_;
};

}  // namespace pentatron
