// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/part_rows.h"

#include <algorithm>
#include <cstring>

#include "pentatron/base/error.h"

namespace pentatron::families {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t values = 1;
  for (const std::int64_t size : shape) values *= size;
  return values;
}

void check_sizes(const TensorLink& link, std::size_t item, RowRange range, std::size_t tensor_bytes,
                 std::size_t row_bytes) {
  const auto values = static_cast<std::size_t>((range.end - range.begin) * row_values(link));
  PENTATRON_CHECK(range.begin >= 0 && range.begin <= range.end &&
                      range.end <= link.part.shape.at(0) && row_bytes == values * item &&
                      tensor_bytes == static_cast<std::size_t>(product(link.tensor_shape)) * item,
                  kInternal, "rows {} to {} of {} in {}: {} bytes of {}", range.begin, range.end,
                  link.part.name, link.tensor, row_bytes, tensor_bytes);
}

// Calls copy(row of the part, row of the tensor, number of rows) for runs of rows that lie together
// on both sides.
template <typename Copy>
void for_each_run(const TensorLink& link, RowRange range, Copy copy) {
  const RowBlocks& blocks = link.rows;
  for (std::int64_t row = range.begin; row < range.end;) {
    if (blocks.block == 0) return copy(row, blocks.first + row, range.end - row);
    const std::int64_t inside = row % blocks.block;
    const std::int64_t count = std::min(blocks.block - inside, range.end - row);
    copy(row, blocks.first + row / blocks.block * blocks.stride + inside, count);
    row += count;
  }
}

// Columns `first` to `first + count` of a [rows, width] matrix become the rows of `out`, or, turned
// around, take its values.
template <typename Move>
void transpose(const TensorLink& link, std::int64_t first, std::int64_t count, Move move) {
  const std::int64_t width = link.tensor_shape[1];
  const std::int64_t height = link.tensor_shape[0];
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < count; ++x) move(y * width + first + x, x * height + y);
  }
}

}  // namespace

std::int64_t row_values(const TensorLink& link) {
  return product(link.part.shape) / link.part.shape.at(0);
}

void gather_rows(const TensorLink& link, std::size_t item, RowRange range,
                 std::span<const std::byte> tensor, std::span<std::byte> rows) {
  check_sizes(link, item, range, tensor.size(), rows.size());
  const std::size_t row_bytes = static_cast<std::size_t>(row_values(link)) * item;
  for_each_run(link, range, [&](std::int64_t row, std::int64_t there, std::int64_t count) {
    std::byte* out = rows.data() + static_cast<std::size_t>(row - range.begin) * row_bytes;
    if (link.transposed) {
      transpose(link, there, count, [&](std::int64_t from, std::int64_t to) {
        std::memcpy(out + static_cast<std::size_t>(to) * item,
                    tensor.data() + static_cast<std::size_t>(from) * item, item);
      });
      return;
    }
    std::memcpy(out, tensor.data() + static_cast<std::size_t>(there) * row_bytes,
                static_cast<std::size_t>(count) * row_bytes);
  });
}

void scatter_rows(const TensorLink& link, std::size_t item, RowRange range,
                  std::span<const std::byte> rows, std::span<std::byte> tensor) {
  check_sizes(link, item, range, tensor.size(), rows.size());
  const std::size_t row_bytes = static_cast<std::size_t>(row_values(link)) * item;
  for_each_run(link, range, [&](std::int64_t row, std::int64_t there, std::int64_t count) {
    const std::byte* in = rows.data() + static_cast<std::size_t>(row - range.begin) * row_bytes;
    if (link.transposed) {
      transpose(link, there, count, [&](std::int64_t to, std::int64_t from) {
        std::memcpy(tensor.data() + static_cast<std::size_t>(to) * item,
                    in + static_cast<std::size_t>(from) * item, item);
      });
      return;
    }
    std::memcpy(tensor.data() + static_cast<std::size_t>(there) * row_bytes, in,
                static_cast<std::size_t>(count) * row_bytes);
  });
}

}  // namespace pentatron::families
