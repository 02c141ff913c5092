// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/tensor/tensor.h"

namespace pentatron::ops {

// Hears of the four moments of every unit of this rank (nn/unit.h). `unit`: its index on the rank.
class UnitEventSink {
 public:
  virtual ~UnitEventSink() = default;
  virtual void on_forward_begin(int unit) {}
  virtual void on_forward_end(int unit) {}
  virtual void on_backward_begin(int unit) {}
  virtual void on_backward_end(int unit) {}
};

// Identity nodes at the two borders of a unit: begin(inputs) fires on_forward_begin now and
// on_backward_end in backward; end(outputs) fires on_forward_end now and on_backward_begin in
// backward. One node for all tensors of a border, made wherever gradients are recorded: every rank
// records the same nodes. At least one tensor, all floating point.
[[nodiscard]] std::vector<Tensor> unit_begin(const std::vector<Tensor>& inputs, int unit,
                                             UnitEventSink& sink);
[[nodiscard]] std::vector<Tensor> unit_end(const std::vector<Tensor>& outputs, int unit,
                                           UnitEventSink& sink);

}  // namespace pentatron::ops
