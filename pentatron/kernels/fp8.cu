// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/fp8.h"

#include <cfloat>

#include <cuda_fp8.h>

#include "pentatron/kernels/common.cuh"

namespace pentatron::kernels {
namespace {

constexpr int kThreads = 256;

// Magnitudes are ordered as their bits are; a NaN's bits lie above those of infinity.
__device__ __forceinline__ unsigned magnitude_bits(float x) {
  return __float_as_uint(x) & 0x7fffffffu;
}

struct LargerBits {
  __device__ __forceinline__ unsigned operator()(unsigned a, unsigned b) const {
    return a > b ? a : b;
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    largest_magnitude_kernel(const T* __restrict__ x, std::int64_t count,
                             const float* __restrict__ known, unsigned* __restrict__ largest) {
  if (known != nullptr && *known > 0.0f) return;
  constexpr int N = kVector<T>;
  __shared__ unsigned scratch[32];
  const std::int64_t vectors = count / N;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  unsigned most = 0;
#pragma unroll 4
  for (std::int64_t i = first; i < vectors; i += step) {
    const Vec<T, N> v = load<N>(x + i * N);
#pragma unroll
    for (int j = 0; j < N; ++j) most = max(most, magnitude_bits(widen<float>(v.v[j])));
  }
  for (std::int64_t i = vectors * N + first; i < count; i += step) {
    most = max(most, magnitude_bits(widen<float>(x[i])));
  }
  most = block_reduce(most, 0u, scratch, LargerBits{});
  if (threadIdx.x == 0) atomicMax(largest, most);
}

template <Fp8Kind kKind>
struct Format;
template <>
struct Format<Fp8Kind::kE4M3> {
  static constexpr float kLargest = 448.0f;
  static constexpr __nv_fp8_interpretation_t kNumbers = __NV_E4M3;
};
template <>
struct Format<Fp8Kind::kE5M2> {
  static constexpr float kLargest = 57344.0f;
  static constexpr __nv_fp8_interpretation_t kNumbers = __NV_E5M2;
};

template <Fp8Kind kKind>
__device__ __forceinline__ float scale_for(float largest) {
  const float scale = __fmul_rn(largest, static_cast<float>(1.0 / Format<kKind>::kLargest));
  return scale < FLT_MIN ? FLT_MIN : scale;  // a NaN stays one
}

// The conversion clips; what is infinite must stay visible.
__device__ __forceinline__ float finite_or_nan(float x) { return __fadd_rn(x, __fsub_rn(x, x)); }

// Two values, the first in the low byte; saturates.
template <Fp8Kind kKind>
__device__ __forceinline__ unsigned pack2(float a, float b) {
  return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, Format<kKind>::kNumbers);
}

// A block casts kTileRows x kTileColumns. A thread holds 4 rows of kGroup neighbours; the words of
// 4 rows go through shared memory, so that both outputs are written in whole lines.
constexpr int kTileRows = 128;
constexpr int kTileColumns = 64;
constexpr int kGroup = 8;
constexpr int kColumnGroups = kTileColumns / kGroup;
constexpr int kRowWords = kTileRows / 4;
static_assert(kColumnGroups * kRowWords == kThreads && kRowWords == 32);

template <typename T, Fp8Kind kKind, bool kRows, bool kColumns, bool kSeen>
__global__ void __launch_bounds__(kThreads) cast_kernel(Fp8Cast in) {
  __shared__ unsigned tile[kColumns ? kTileColumns : 1][kRowWords + 1];
  __shared__ unsigned scratch[32];
  const float magnitude = in.known != nullptr && *in.known > 0.0f ? *in.known : *in.largest;
  const float scale = scale_for<kKind>(magnitude);
  const float inverse = __frcp_rn(scale);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *in.scale = scale;
  const auto* x = static_cast<const T*>(in.x);
  const int group = static_cast<int>(threadIdx.x) % kColumnGroups;
  const int word = static_cast<int>(threadIdx.x) / kColumnGroups;
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * kTileRows + word * 4;
  const std::int64_t tile_column = static_cast<std::int64_t>(blockIdx.x) * kTileColumns;
  const std::int64_t column = tile_column + group * kGroup;
  unsigned bytes[4][2] = {};  // of a row: two words of 4 columns
  unsigned most = 0;
  if (column < in.columns) {
    float values[4][kGroup] = {};
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (row0 + r >= in.rows) continue;
      const T* from = x + (row0 + r) * in.columns + column;
      constexpr int N = kVector<T> < kGroup ? kVector<T> : kGroup;
#pragma unroll
      for (int part = 0; part < kGroup; part += N) {
        const Vec<T, N> v = load<N>(from + part);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          values[r][part + j] = widen<float>(v.v[j]);
          if constexpr (kSeen) most = max(most, magnitude_bits(values[r][part + j]));
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        const float* v = values[r] + 4 * w;
        bytes[r][w] =
            pack2<kKind>(finite_or_nan(v[0] * inverse), finite_or_nan(v[1] * inverse)) |
            (pack2<kKind>(finite_or_nan(v[2] * inverse), finite_or_nan(v[3] * inverse)) << 16);
      }
    }
    if constexpr (kRows) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (row0 + r >= in.rows) continue;
        auto* to = static_cast<unsigned char*>(in.rows_out) + (row0 + r) * in.columns + column;
        *reinterpret_cast<uint2*>(to) = make_uint2(bytes[r][0], bytes[r][1]);
      }
    }
  }
  if constexpr (kSeen) {
    most = block_reduce(most, 0u, scratch, LargerBits{});
    // Doubles of one sign are ordered as their bits are, and the first value, -infinity, is below.
    if (threadIdx.x == 0) {
      atomicMax(reinterpret_cast<long long*>(in.seen),
                __double_as_longlong(static_cast<double>(__uint_as_float(most))));
    }
  }
  if constexpr (kColumns) {
    // The 4 x 4 bytes of two groups of columns turned round.
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const unsigned a = bytes[0][w], b = bytes[1][w], c = bytes[2][w], d = bytes[3][w];
      const unsigned ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
      const unsigned cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
      const int first = group * kGroup + 4 * w;
      tile[first + 0][word] = __byte_perm(ab_low, cd_low, 0x5410);
      tile[first + 1][word] = __byte_perm(ab_low, cd_low, 0x7632);
      tile[first + 2][word] = __byte_perm(ab_high, cd_high, 0x5410);
      tile[first + 3][word] = __byte_perm(ab_high, cd_high, 0x7632);
    }
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kTileRows + lane * 4;
    for (int c = warp; c < kTileColumns; c += kThreads / 32) {
      if (tile_column + c >= in.columns || row >= in.padded_rows) continue;
      auto* to =
          static_cast<unsigned char*>(in.columns_out) + (tile_column + c) * in.padded_rows + row;
      *reinterpret_cast<unsigned*>(to) = tile[c][lane];
    }
  }
}

template <typename T, Fp8Kind kKind, bool kSeen>
cudaError_t launch_cast(const Fp8Cast& in, cudaStream_t stream) {
  const std::int64_t rows = in.columns_out != nullptr ? in.padded_rows : in.rows;
  const dim3 grid(static_cast<unsigned>((in.columns + kTileColumns - 1) / kTileColumns),
                  static_cast<unsigned>((rows + kTileRows - 1) / kTileRows));
  if (grid.x == 0 || grid.y == 0) return cudaSuccess;
  if (in.rows_out != nullptr && in.columns_out != nullptr) {
    cast_kernel<T, kKind, true, true, kSeen><<<grid, kThreads, 0, stream>>>(in);
  } else if (in.rows_out != nullptr) {
    cast_kernel<T, kKind, true, false, kSeen><<<grid, kThreads, 0, stream>>>(in);
  } else {
    cast_kernel<T, kKind, false, true, kSeen><<<grid, kThreads, 0, stream>>>(in);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_largest_magnitude(const void* x, Type type, std::int64_t count,
                                     const float* known, float* largest, cudaStream_t stream) {
  const cudaError_t status = cudaMemsetAsync(largest, 0, sizeof(float), stream);
  if (status != cudaSuccess || count == 0) return status;
  return dispatch(type, [&](auto element) {
    using T = decltype(element);
    const unsigned grid = grid_for((count + kVector<T> - 1) / kVector<T>, kThreads);
    largest_magnitude_kernel<T><<<grid, kThreads, 0, stream>>>(
        static_cast<const T*>(x), count, known, reinterpret_cast<unsigned*>(largest));
    return cudaGetLastError();
  });
}

cudaError_t launch_fp8_cast(const Fp8Cast& in, cudaStream_t stream) {
  return dispatch(in.type, [&](auto element) {
    using T = decltype(element);
    if (in.seen != nullptr) {
      return in.format == Fp8Kind::kE4M3 ? launch_cast<T, Fp8Kind::kE4M3, true>(in, stream)
                                         : launch_cast<T, Fp8Kind::kE5M2, true>(in, stream);
    }
    return in.format == Fp8Kind::kE4M3 ? launch_cast<T, Fp8Kind::kE4M3, false>(in, stream)
                                       : launch_cast<T, Fp8Kind::kE5M2, false>(in, stream);
  });
}

}  // namespace pentatron::kernels
