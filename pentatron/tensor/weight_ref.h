// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/fp8.h"
#include "pentatron/tensor/tensor.h"

namespace pentatron {

// In which numbers a product is made.
enum class Numbers { kCompute, kFp8 };

// In which form an op wants a weight [out, in]. The default: as it is, in the compute dtype. As fp8
// it comes as [out, in] for the forward product and transposed, [in, out], for the gradient of the
// input, with the scales of `block` (of the tensor as it comes).
struct WeightFormat {
  Numbers numbers = Numbers::kCompute;
  bool transposed = false;
  tensor::ScaleBlock block = {};
  bool operator==(const WeightFormat&) const = default;
};

struct WeightView {
  Tensor data;
  Tensor scale = {};              // undefined unless fp8; as in tensor::Fp8Tensor
  tensor::ScaleBlock block = {};  // what was asked for
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

  [[nodiscard]] Tensor forward_weight() { return forward_view({}).data; }
  [[nodiscard]] Tensor backward_weight() { return backward_view({}).data; }
};

// Adds `gradient` (any float dtype, local shape) into the weight's slot; nothing when it is not
// trainable. Another shape: kInternal.
void write_grad(WeightRef& weight, const Tensor& gradient);
// The same for a slot in hand; `gradient` has the slot's shape.
void write_slot(const GradSlot& slot, const Tensor& gradient);

}  // namespace pentatron
