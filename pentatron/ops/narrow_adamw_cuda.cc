// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/kernels/narrow_adamw.h"
#include "pentatron/ops/narrow_adamw.h"
#include "pentatron/ops/step_scalars_cuda.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/tensor/random.h"

namespace pentatron::ops {
namespace {

kernels::NarrowSlice slice_of(const NarrowSegment& segment) {
  const ElementPlace& place = segment.place;
  return {.slice = cuda::flat_slice(segment.update, /*with_first=*/true),
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
  tensor::check_launch(
      kernels::narrow_adamw_step(
          {.state_is_bf16 = {narrow(like.param), narrow(like.first), narrow(like.second)},
           .grad_is_bf16 = narrow(like.grad),
           .slices = slices.data(),
           .num_slices = slices.size()},
          step_scalars(scalars, like.param), adam_config(options),
          make_site(seed, "stochastic_rounding").key, tensor::stream_of(like.param)),
      "narrow_adamw_step");
}

}  // namespace pentatron::ops
