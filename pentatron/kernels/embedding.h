// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/types.h"

namespace pentatron::kernels {

// out[t] = table[ids[t] - row_begin] for rows of row_bytes bytes, zero where the id is outside
// [row_begin, row_begin + rows).
[[nodiscard]] cudaError_t gather_rows(const std::int64_t* ids, std::int64_t tokens,
                                      const void* table, std::int64_t row_bytes,
                                      std::int64_t row_begin, std::int64_t rows, void* out,
                                      cudaStream_t stream);

struct ScatterArguments {
  const std::int64_t* sorted_ids;  // ascending
  const std::int64_t* order;       // place of each sorted id in the batch; equal ids in order of t
  std::int64_t tokens, columns, row_begin, rows;
};
// Adds the dy rows of each id, in the order of t, to its row of the slot [.., columns] (whose
// `accumulate` is not read: the caller has zeroed it or not). Sums are fp64 if the slot is fp64,
// else fp32; a slot of 16 bits takes the sum in one rounding.
[[nodiscard]] cudaError_t scatter_rows(Type type, const ScatterArguments& arguments, const void* dy,
                                       const Slot& slot, cudaStream_t stream);

}  // namespace pentatron::kernels
