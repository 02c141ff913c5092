// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/step_scalars_cuda.h"

#include <array>

#include "pentatron/base/error.h"
#include "pentatron/tensor/kernel_launch.h"

namespace pentatron::ops {
namespace {

const double* scalar_at(const Tensor& scalar, const Tensor& param) {
  if (!scalar.defined()) return nullptr;
  PENTATRON_CHECK(scalar.device() == param.device() && scalar.numel() == 1, kInternal,
                  "optimizer step: the scalar {} is not on {}", tensor::describe(scalar),
                  param.device().str());
  return scalar.const_data_ptr<double>();
}

}  // namespace

kernels::StepScalars cuda::step_scalars(const AdamScalars& scalars, const Tensor& param) {
  static_assert(kernels::kNumRates == kNumRateClasses);
  const std::array<Tensor, kNumRateClasses> rates = rates_of(scalars);
  return {
      .rates = {scalar_at(rates[0], param), scalar_at(rates[1], param), scalar_at(rates[2], param)},
      .step = scalar_at(scalars.step, param),
      .grad_scale = scalar_at(scalars.grad_scale, param),
      .weight_decay = scalar_at(scalars.weight_decay, param),
      .skip = scalar_at(scalars.skip, param)};
}

kernels::AdamConfig cuda::adam_config(const AdamOptions& options) {
  return {.beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay};
}

kernels::FlatSlice cuda::flat_slice(const UpdateSegment& segment, bool with_first) {
  return {.param = tensor::write(segment.param),
          .grad = tensor::read(segment.grad),
          .first = with_first ? tensor::write(segment.first) : nullptr,
          .second = tensor::write(segment.second),
          .count = segment.param.numel(),
          .eps_factor = segment.eps_factor,
          .rate = static_cast<std::int32_t>(segment.rate),
          .decays = segment.decays};
}

}  // namespace pentatron::ops
