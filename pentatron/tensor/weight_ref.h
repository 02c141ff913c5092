// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/tensor.h"

namespace pentatron {

// In which form an op wants a weight. kCompute: the compute dtype. fp8 forms come with a scale
// beside the payload (value = payload * scale): kFp8RowWise as [out, in] for the forward product,
// kFp8ColumnWise stored transposed, [in, out], for the gradient of the input.
enum class WeightFormat { kCompute, kFp8RowWise, kFp8ColumnWise };

struct WeightView {
  Tensor data;
  Tensor scale;  // undefined unless fp8
};

// Where an op writes a weight's gradient: `buffer` has the parameter's local shape and the
// main-gradient dtype. accumulate == false: overwrite it (the first write of a step); an op with no
// rows then writes zeros.
struct GradSlot {
  Tensor buffer;
  bool accumulate = true;
};

// A weight as ops see it; nn::Parameter implements it. Ops never save a weight: they hold a
// WeightRef and ask at the time of use, so that sharded weights can be freed after use and cached
// formats renewed. It outlives every graph that refers to it.
class WeightRef {
 public:
  virtual ~WeightRef() = default;

  [[nodiscard]] virtual WeightView forward_view(WeightFormat format) = 0;
  [[nodiscard]] virtual WeightView backward_view(WeightFormat format) = 0;
  // Each call hands out the slot for exactly one write; after the first of a step, slots
  // accumulate.
  [[nodiscard]] virtual GradSlot grad_slot() = 0;
  [[nodiscard]] virtual bool trainable() const = 0;

  [[nodiscard]] Tensor forward_weight() { return forward_view(WeightFormat::kCompute).data; }
  [[nodiscard]] Tensor backward_weight() { return backward_view(WeightFormat::kCompute).data; }
};

// Adds `gradient` (any float dtype, local shape) into the weight's slot; nothing when it is not
// trainable. Another shape: kInternal.
void write_grad(WeightRef& weight, const Tensor& gradient);
// The same for a slot in hand; `gradient` has the slot's shape.
void write_slot(const GradSlot& slot, const Tensor& gradient);

}  // namespace pentatron
