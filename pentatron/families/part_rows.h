// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pentatron/families/name_map.h"

// Rows of a part out of its tensor and into it. Values are bytes of `item` each, row-major on both
// sides; sizes that are not those of the link: kInternal.
namespace pentatron::families {

struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Values of one row of a part: its columns.
[[nodiscard]] std::int64_t row_values(const TensorLink& link);

// The row of the tensor where row `row` of the part stands.
[[nodiscard]] std::int64_t row_in_tensor(const RowBlocks& blocks, std::int64_t row);

// Rows [begin, end) of the part, one after the other, into `rows`.
void gather_rows(const TensorLink& link, std::size_t item, RowRange range,
                 std::span<const std::byte> tensor, std::span<std::byte> rows);
// The inverse: the other rows of the tensor are left alone.
void scatter_rows(const TensorLink& link, std::size_t item, RowRange range,
                  std::span<const std::byte> rows, std::span<std::byte> tensor);

}  // namespace pentatron::families
