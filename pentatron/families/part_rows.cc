// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/part_rows.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

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
    const std::int64_t left = range.end - row;
    const std::int64_t count =
        blocks.block == 0 ? left : std::min(blocks.block - row % blocks.block, left);
    copy(row, row_in_tensor(blocks, row), count);
    row += count;
  }
}

// Columns `first` to `first + count` of a [rows, width] matrix become the rows of `out`, or, turned
// around, take its values. Squares of 64: a line of the cache serves several of their columns.
template <std::size_t kItem, typename Move>
void transpose(const TensorLink& link, std::int64_t first, std::int64_t count, Move move) {
  constexpr std::int64_t kSide = 64;
  const std::int64_t width = link.tensor_shape[1];
  const std::int64_t height = link.tensor_shape[0];
  for (std::int64_t top = 0; top < height; top += kSide) {
    const std::int64_t bottom = std::min(height, top + kSide);
    for (std::int64_t left = 0; left < count; left += kSide) {
      const std::int64_t right = std::min(count, left + kSide);
      for (std::int64_t y = top; y < bottom; ++y) {
        for (std::int64_t x = left; x < right; ++x) {
          move(static_cast<std::size_t>(y * width + first + x) * kItem,
               static_cast<std::size_t>(x * height + y) * kItem,
               std::integral_constant<std::size_t, kItem>());
        }
      }
    }
  }
}

// move(place in the tensor, place in the rows, bytes of a value)
template <typename Move>
void transpose(const TensorLink& link, std::size_t item, std::int64_t first, std::int64_t count,
               Move move) {
  switch (item) {
    case 2:
      return transpose<2>(link, first, count, move);
    case 4:
      return transpose<4>(link, first, count, move);
    case 8:
      return transpose<8>(link, first, count, move);
    default:
      PENTATRON_THROW(kInternal, "values of {} bytes", item);
  }
}

}  // namespace

std::int64_t row_in_tensor(const RowBlocks& blocks, std::int64_t row) {
  if (blocks.block == 0) return blocks.first + row;
  return blocks.first + row / blocks.block * blocks.stride + row % blocks.block;
}

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
      transpose(link, item, there, count, [&](std::size_t from, std::size_t to, auto bytes) {
        std::memcpy(out + to, tensor.data() + from, bytes);
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
      transpose(link, item, there, count, [&](std::size_t to, std::size_t from, auto bytes) {
        std::memcpy(tensor.data() + to, in + from, bytes);
      });
      return;
    }
    std::memcpy(tensor.data() + static_cast<std::size_t>(there) * row_bytes, in,
                static_cast<std::size_t>(count) * row_bytes);
  });
}

}  // namespace pentatron::families
