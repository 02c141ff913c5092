// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/kernels/narrow_adamw.h"
#include "pentatron/ops/narrow_adamw.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/tensor/random.h"

namespace pentatron::ops {
namespace {

using tensor::read;
using tensor::write;

const double* scalar_at(const Tensor& scalar, const Tensor& param) {
  if (!scalar.defined()) return nullptr;
  PENTATRON_CHECK(scalar.device() == param.device() && scalar.numel() == 1, kInternal,
                  "optimizer step: the scalar {} is not on {}", tensor::describe(scalar),
                  param.device().str());
  return scalar.const_data_ptr<double>();
}

kernels::NarrowSlice slice_of(const NarrowSegment& segment) {
  const UpdateSegment& s = segment.update;
  const ElementPlace& place = segment.place;
  return {.slice = {.param = write(s.param),
                    .grad = read(s.grad),
                    .first = write(s.first),
                    .second = write(s.second),
                    .count = s.param.numel(),
                    .eps_factor = s.eps_factor,
                    .rate = static_cast<std::int32_t>(s.rate),
                    .decays = s.decays},
          .streams = {segment.streams.param, segment.streams.first, segment.streams.second},
          .first = place.first,
          .width = place.width,
          .logical_width = place.logical_width,
          .row_offset = place.row_offset,
          .column_offset = place.column_offset};
}

bool narrow(const Tensor& t) { return t.scalar_type() == DType::BFloat16; }

}  // namespace

void cuda::narrow_adamw_step(NarrowSegments segments, const AdamScalars& scalars,
                             const AdamOptions& options, std::uint64_t seed) {
  PENTATRON_CHECK(scalars.lr.defined() && scalars.step.defined(), kInternal,
                  "adamw: learning rate and step count are not given");
  std::vector<kernels::NarrowSlice> slices;
  slices.reserve(segments.size());
  for (const NarrowSegment& segment : segments) slices.push_back(slice_of(segment));
  const UpdateSegment& like = segments[0].update;
  const std::array<Tensor, kNumRateClasses> rates = rates_of(scalars);
  const kernels::StepScalars at{
      .rates = {scalar_at(rates[0], like.param), scalar_at(rates[1], like.param),
                scalar_at(rates[2], like.param)},
      .step = scalar_at(scalars.step, like.param),
      .grad_scale = scalar_at(scalars.grad_scale, like.param),
      .weight_decay = scalar_at(scalars.weight_decay, like.param),
      .skip = scalar_at(scalars.skip, like.param)};
  tensor::check_launch(
      kernels::narrow_adamw_step(
          {.state_is_bf16 = {narrow(like.param), narrow(like.first), narrow(like.second)},
           .grad_is_bf16 = narrow(like.grad),
           .slices = slices.data(),
           .num_slices = slices.size()},
          at,
          {.beta1 = options.beta1,
           .beta2 = options.beta2,
           .eps = options.eps,
           .weight_decay = options.weight_decay},
          make_site(seed, "stochastic_rounding").key, tensor::stream_of(like.param)),
      "narrow_adamw_step");
}

}  // namespace pentatron::ops
