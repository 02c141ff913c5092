// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/optimizer.h"
#include "pentatron/ops/adamw.h"

// What kernels of the optimizer take from an op's arguments.
namespace pentatron::ops::cuda {

// Null where a scalar is undefined; one that is not on `param`'s device: kInternal.
[[nodiscard]] kernels::StepScalars step_scalars(const AdamScalars& scalars, const Tensor& param);

[[nodiscard]] kernels::AdamConfig adam_config(const AdamOptions& options);

// With the first moment if `with_first`.
[[nodiscard]] kernels::FlatSlice flat_slice(const UpdateSegment& segment, bool with_first);

}  // namespace pentatron::ops::cuda
