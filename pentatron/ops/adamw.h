// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "pentatron/tensor/tensor.h"

namespace pentatron::ops {

// What changes from step to step is read from device memory: fp64 scalars on the parameter's
// device.
struct AdamScalars {
  Tensor lr;                 // learning rate of this step
  Tensor step;               // 1 for the first step
  Tensor grad_scale = {};    // multiplies the gradient (clip factor / loss scale); undefined: 1
  Tensor weight_decay = {};  // multiplies the options' weight decay; undefined: 1
  // Not 0: the call changes nothing, whatever the other scalars hold (a step whose gradients are
  // not finite, decided without the host). Undefined: 0.
  Tensor skip = {};
  // Of segments that say so (RateClass); undefined: lr
  Tensor decoupled_lr = {};
  Tensor width_lr = {};
};

// Which of the step's learning rates a segment has.
enum class RateClass {
  kUsual,      // AdamScalars::lr
  kDecoupled,  // ::decoupled_lr
  kWidth,      // ::width_lr
};
inline constexpr std::size_t kNumRateClasses = 3;
// By number of class, none undefined.
[[nodiscard]] std::array<Tensor, kNumRateClasses> rates_of(const AdamScalars& scalars);

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;  // decoupled: p -= lr * wd * p, wd times AdamScalars::weight_decay
};

// A flat contiguous slice of a parameter with what belongs to it. An update takes all slices of a
// rank in one call: one launch on a GPU, one pass of the threads on a CPU.
struct UpdateSegment {
  Tensor param;
  Tensor grad;
  Tensor first;        // Adam's first moment, or SGD's momentum (undefined without momentum)
  Tensor second = {};  // Adam's second moment
  bool decays = true;  // false: weight decay 0
  RateClass rate = RateClass::kUsual;
  double eps_factor = 1.0;  // Adam's eps here is this many times the options'
};
using UpdateSegments = std::span<const UpdateSegment>;

// AdamW, element by element (the result does not depend on how a tensor is cut):
//   g = grad * scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
//   p = p - lr * (wd * p + (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)).
// param and moments fp32 or fp64 (another dtype: kUnsupported); gradient fp32, fp64 or bf16; the
// same dtypes and device in all segments of a call. Slices of unequal sizes or with gaps, and a
// step below 1 where it can be read: kInternal.
void adamw_step(UpdateSegments segments, const AdamScalars& scalars, const AdamOptions& options);
// Of one slice.
void adamw_step(Tensor param, const Tensor& grad, Tensor exp_avg, Tensor exp_avg_sq,
                const AdamScalars& scalars, const AdamOptions& options);

// SGD with momentum: m = momentum * m + (g + wd * p); p = p - lr * m (momentum 0: m is not used and
// may be undefined).
void sgd_step(UpdateSegments segments, const AdamScalars& scalars, double momentum,
              double weight_decay);
void sgd_step(Tensor param, const Tensor& grad, Tensor momentum_buffer, const AdamScalars& scalars,
              double momentum, double weight_decay);

// Sum of squares, blocked in a fixed order: an fp64 scalar on t's device.
[[nodiscard]] Tensor sum_of_squares(const Tensor& t);
// The same, added to `sum`.
void add_squares(const Tensor& t, const Tensor& sum);

}  // namespace pentatron::ops
