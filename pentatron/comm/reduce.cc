// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/reduce.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "pentatron/base/error.h"

namespace pentatron::comm {
namespace {

template <typename T>
T combine(ReduceOp op, T total, T value) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:                  // divided in the end
      if constexpr (std::is_integral_v<T>) {  // wraps, as hardware does, without undefined
                                              // behaviour
        using Unsigned = std::make_unsigned_t<T>;
        return static_cast<T>(static_cast<Unsigned>(total) + static_cast<Unsigned>(value));
      } else {
        return total + value;
      }
    case ReduceOp::kMax:
      return value > total || value != value ? value : total;
    case ReduceOp::kMin:
      return value < total || value != value ? value : total;
    case ReduceOp::kProduct:
      if constexpr (std::is_integral_v<T>) {
        using Wide = std::uint64_t;
        return static_cast<T>(static_cast<Wide>(total) * static_cast<Wide>(value));
      } else {
        return total * value;
      }
  }
  return total;
}

// Of whole numbers without what is behind the point.
template <typename T>
T average(T total, std::size_t members) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(total) / static_cast<std::int64_t>(members));
  } else {
    return total / static_cast<T>(members);
  }
}

// Blocks keep the accumulators in the nearest cache and make it safe that outputs overlay inputs.
template <typename T, typename Accumulator>
void reduce_typed(ReduceOp op, std::span<const void* const> ins, std::span<void* const> outs,
                  std::int64_t count) {
  constexpr std::int64_t kBlock = 1024;
  std::array<Accumulator, kBlock> total;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(ins[0]) + begin;
    for (std::int64_t i = 0; i < length; ++i) total[i] = static_cast<Accumulator>(first[i]);
    for (const void* in : ins.subspan(1)) {
      const T* next = static_cast<const T*>(in) + begin;
      for (std::int64_t i = 0; i < length; ++i) {
        total[i] = combine<Accumulator>(op, total[i], static_cast<Accumulator>(next[i]));
      }
    }
    if (op == ReduceOp::kAverage) {
      for (std::int64_t i = 0; i < length; ++i) total[i] = average(total[i], ins.size());
    }
    for (void* out : outs) {
      T* target = static_cast<T*>(out) + begin;
      for (std::int64_t i = 0; i < length; ++i) target[i] = static_cast<T>(total[i]);
    }
  }
}

}  // namespace

void reduce_in_order(DType dtype, ReduceOp op, std::span<const void* const> ins,
                     std::span<void* const> outs, std::int64_t count) {
  switch (dtype) {
    case DType::Double:
      return reduce_typed<double, double>(op, ins, outs, count);
    case DType::Float:
      return reduce_typed<float, float>(op, ins, outs, count);
    case DType::BFloat16:
      return reduce_typed<c10::BFloat16, float>(op, ins, outs, count);
    case DType::Half:
      return reduce_typed<c10::Half, float>(op, ins, outs, count);
    case DType::Long:
      return reduce_typed<std::int64_t, std::int64_t>(op, ins, outs, count);
    case DType::Int:
      return reduce_typed<std::int32_t, std::int32_t>(op, ins, outs, count);
    case DType::Short:
      return reduce_typed<std::int16_t, std::int16_t>(op, ins, outs, count);
    case DType::Char:
      return reduce_typed<std::int8_t, std::int8_t>(op, ins, outs, count);
    case DType::Byte:
      return reduce_typed<std::uint8_t, std::uint8_t>(op, ins, outs, count);
    default:
      PENTATRON_THROW(kUnsupported, "cannot reduce tensors of dtype {}", tensor::dtype_name(dtype));
  }
}

}  // namespace pentatron::comm
