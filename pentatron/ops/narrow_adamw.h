// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "pentatron/ops/adamw.h"

// AdamW where the parameter or its moments are kept in bf16 instead of fp32. Each element is
// widened, updated in fp32 as adamw_step() does, and what is kept in bf16 is rounded to one of its
// two neighbours with a chance that makes the mean the value: a change smaller than half a step of
// bf16, which rounding to nearest would always lose, is kept on average (all-bf16 state).
namespace pentatron::ops {

// Which elements of a logical tensor a slice holds, the tensor seen as a matrix: they begin at
// element `first`, row-major, of a box of `width` columns whose corner is (row_offset,
// column_offset).
struct ElementPlace {
  std::int64_t first = 0;
  std::int64_t width = 1;
  std::int64_t logical_width = 1;
  std::int64_t row_offset = 0;
  std::int64_t column_offset = 0;
};

// Streams of draws, one for each state; as `bucket` of tensor::stochastic_round_bf16_keyed.
struct RoundingStreams {
  std::uint32_t param = 0, first = 0, second = 0;
};

struct NarrowSegment {
  UpdateSegment update;  // param, first, second: fp32 or bf16 each; grad: fp32 or bf16
  ElementPlace place = {};
  RoundingStreams streams = {};
};
using NarrowSegments = std::span<const NarrowSegment>;

// The draw of an element depends on (seed, AdamScalars::step, stream, its number in the logical
// tensor) alone, so any cut over ranks gives equal bits, on CPUs and GPUs. Dtypes and device are
// those of the first segment in all; other dtypes, sizes or an element from 2^35 on: kInternal.
void narrow_adamw_step(NarrowSegments segments, const AdamScalars& scalars,
                       const AdamOptions& options, std::uint64_t seed);

// The GPUs' implementation, checked arguments; the CUDA library hands it in once, when it is
// loaded. kUnsupported for GPU tensors before.
using NarrowAdamW = void (*)(NarrowSegments segments, const AdamScalars& scalars,
                             const AdamOptions& options, std::uint64_t seed);
void register_cuda_narrow_adamw(NarrowAdamW implementation);

namespace cuda {
void narrow_adamw_step(NarrowSegments segments, const AdamScalars& scalars,
                       const AdamOptions& options, std::uint64_t seed);
}

}  // namespace pentatron::ops
