// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/ops/rows.h"
#include "pentatron/tensor/tensor.h"

// How CPU ops meet dtypes: tensors are stored as T (fp32, fp64, bf16 or fp16) and computed row by
// row in C (fp32 or fp64).
namespace pentatron::ops {

// fp64 where the tensor or the asked statistics are fp64, else fp32.
[[nodiscard]] inline DType compute_dtype(DType storage, DType statistics = DType::Float) {
  return storage == DType::Double || statistics == DType::Double ? DType::Double : DType::Float;
}

// On GPUs the computing type follows from the storage: wider statistics are a CPU's.
[[nodiscard]] inline DType device_compute_dtype(DType storage, DType statistics) {
  const DType computed = compute_dtype(storage);
  PENTATRON_CHECK(compute_dtype(storage, statistics) == computed, kUnsupported,
                  "{} statistics over {} tensors are computed on CPUs only",
                  tensor::dtype_name(statistics), tensor::dtype_name(storage));
  return computed;
}

// Calls body(T{}, C{}) for the storage and computing types.
template <typename F>
void dispatch_float(DType storage, DType statistics, F&& body) {
  const bool wide = compute_dtype(storage, statistics) == DType::Double;
  switch (storage) {
    case DType::Double:
      return body(double{}, double{});
    case DType::Float:
      return wide ? body(float{}, double{}) : body(float{}, float{});
    case DType::BFloat16:
      return wide ? body(c10::BFloat16{}, double{}) : body(c10::BFloat16{}, float{});
    case DType::Half:
      return wide ? body(c10::Half{}, double{}) : body(c10::Half{}, float{});
    default:
      PENTATRON_THROW(kUnsupported, "CPU ops compute in fp32, bf16, fp16 and fp64, got {}",
                      tensor::dtype_name(storage));
  }
}
template <typename F>
void dispatch_float(DType storage, F&& body) {
  dispatch_float(storage, DType::Float, std::forward<F>(body));
}

// Reads rows of T as C: the row itself when the types agree, else a converted copy.
template <typename T, typename C>
class RowReader final {
 public:
  const C* operator()(const T* row, std::int64_t n) {
    if constexpr (std::is_same_v<T, C>) {
      return row;
    } else {
      buffer_.resize(static_cast<std::size_t>(n));
      if constexpr (std::is_same_v<T, c10::BFloat16>) {
        rows::widen(reinterpret_cast<const std::uint16_t*>(row), buffer_.data(), n);
      } else {
        for (std::int64_t i = 0; i < n; ++i) buffer_[i] = static_cast<C>(row[i]);
      }
      return buffer_.data();
    }
  }

 private:
  std::vector<C> buffer_;
};

// Writes rows of T from C: begin() gives where to compute, end() rounds it into place.
template <typename T, typename C>
class RowWriter final {
 public:
  C* begin(T* row, std::int64_t n) {
    if constexpr (std::is_same_v<T, C>) {
      return row;
    } else {
      buffer_.resize(static_cast<std::size_t>(n));
      return buffer_.data();
    }
  }
  void end(T* row, std::int64_t n) {
    if constexpr (std::is_same_v<T, c10::BFloat16>) {
      rows::narrow(buffer_.data(), reinterpret_cast<std::uint16_t*>(row), n);
    } else if constexpr (!std::is_same_v<T, C>) {
      for (std::int64_t i = 0; i < n; ++i) row[i] = static_cast<T>(buffer_[i]);
    }
  }

 private:
  std::vector<C> buffer_;
};

// Terms go through fp64 every 1,024 columns: the sum over a large vocabulary keeps all digits of
// its terms.
template <typename C>
[[nodiscard]] double sum_exp_in_blocks(const C* row, C shift, std::int64_t n) {
  constexpr std::int64_t kBlock = 1024;
  double total = 0.0;
  for (std::int64_t at = 0; at < n; at += kBlock) {
    total += rows::sum_exp_shifted(row + at, shift, std::min(kBlock, n - at));
  }
  return total;
}

// Rows of a parallel range, so that one holds about 16 thousand elements.
[[nodiscard]] inline std::int64_t row_grain(std::int64_t row_length) {
  return 1 + 16384 / (row_length > 0 ? row_length : 1);
}

// How elementwise ops see a tensor of any shape: rows of at most 2,048 elements.
constexpr std::int64_t kFlatRow = 2048;

}  // namespace pentatron::ops
