// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "pentatron/kernels/optimizer.h"

// AdamW over slices whose parameter or moments are kept in bf16 (formula and rounding:
// ops/narrow_adamw.h). One launch reads and writes each element once: 2 or 4 bytes of each of
// parameter, two moments (both ways) and gradient. The bits are those of the CPU.
namespace pentatron::kernels {

inline constexpr int kNumNarrowStates = 3;  // parameter, first moment, second moment

struct NarrowSlice {
  FlatSlice slice;
  std::uint32_t streams[kNumNarrowStates];  // Philox streams of the states' draws
  // Where the slice stands in its logical tensor, seen as a matrix: it begins at element `first` of
  // a box of `width` columns, whose corner is (row_offset, column_offset).
  std::int64_t first;
  std::int64_t width;
  std::int64_t logical_width;
  std::int64_t row_offset;
  std::int64_t column_offset;
};
struct NarrowSlices {
  bool state_is_bf16[kNumNarrowStates];  // else fp32
  bool grad_is_bf16;                     // else fp32
  const NarrowSlice* slices;             // host memory
  std::size_t num_slices;
};

[[nodiscard]] cudaError_t narrow_adamw_step(const NarrowSlices& slices, const StepScalars& scalars,
                                            const AdamConfig& config, std::uint64_t site,
                                            cudaStream_t stream);

}  // namespace pentatron::kernels
