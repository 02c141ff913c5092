// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/fp8.h"

#include <cfloat>

#include <cuda_fp8.h>

#include "pentatron/kernels/largest.cuh"

namespace pentatron::kernels {
namespace {

constexpr int kThreads = 256;

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

// Four values under one inverse scale.
template <Fp8Kind kKind>
__device__ __forceinline__ unsigned pack4(float a, float b, float c, float d, float inverse) {
  return pack2<kKind>(finite_or_nan(a * inverse), finite_or_nan(b * inverse)) |
         (pack2<kKind>(finite_or_nan(c * inverse), finite_or_nan(d * inverse)) << 16);
}

// A block casts kTileRows x kTileColumns. A thread holds 4 rows of kGroup neighbours; the words of
// 4 rows go through shared memory, so that both outputs are written in whole lines.
constexpr int kTileRows = 128;
constexpr int kTileColumns = 64;
constexpr int kGroup = 8;
constexpr int kColumnGroups = kTileColumns / kGroup;
constexpr int kRowWords = kTileRows / 4;
static_assert(kColumnGroups * kRowWords == kThreads && kRowWords == 32);

// 4 x kGroup values at (row0, column), which is inside; zeros beyond the last row. Raises `most` to
// their largest magnitude if kSeen.
template <typename T, bool kSeen>
__device__ __forceinline__ void load_rows(const Fp8Cast& in, std::int64_t row0, std::int64_t column,
                                          float (&values)[4][kGroup], unsigned& most) {
  constexpr int N = kVector<T> < kGroup ? kVector<T> : kGroup;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if (row0 + r >= in.rows) continue;
    const T* from = static_cast<const T*>(in.x) + (row0 + r) * in.columns + column;
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
}

__device__ __forceinline__ void store_rows(const Fp8Cast& in, std::int64_t row0,
                                           std::int64_t column, const unsigned (&bytes)[4][2]) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if (row0 + r >= in.rows) continue;
    auto* to = static_cast<unsigned char*>(in.rows_out) + (row0 + r) * in.columns + column;
    *reinterpret_cast<uint2*>(to) = make_uint2(bytes[r][0], bytes[r][1]);
  }
}

// Raises *seen to the largest magnitude of the block.
__device__ __forceinline__ void raise_seen(double* seen, unsigned most, unsigned* scratch) {
  most = block_reduce(most, 0u, scratch, LargerBits{});
  // Doubles of one sign are ordered as their bits are, and the first value, -infinity, is below.
  if (threadIdx.x == 0) {
    atomicMax(reinterpret_cast<long long*>(seen),
              __double_as_longlong(static_cast<double>(__uint_as_float(most))));
  }
}

// The 4 x 4 bytes of two groups of columns turned round: column c of the tile's at tile[c][word].
__device__ __forceinline__ void turn_round(const unsigned (&bytes)[4][2], int group, int word,
                                           unsigned (*tile)[kRowWords + 1]) {
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
}

// The kWidth columns of a block's tile, kTileRows rows each, to the output in order of columns.
template <int kWidth, typename Cast>
__device__ __forceinline__ void store_columns(const Cast& in, unsigned (*tile)[kRowWords + 1]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kTileRows + lane * 4;
  const std::int64_t column0 = static_cast<std::int64_t>(blockIdx.x) * kWidth;
  for (int c = warp; c < kWidth; c += kThreads / 32) {
    if (column0 + c >= in.columns || row >= in.padded_rows) continue;
    auto* to = static_cast<unsigned char*>(in.columns_out) + (column0 + c) * in.padded_rows + row;
    *reinterpret_cast<unsigned*>(to) = tile[c][lane];
  }
}

template <typename T, Fp8Kind kKind, bool kRows, bool kColumns, bool kSeen>
__global__ void __launch_bounds__(kThreads) cast_kernel(Fp8Cast in) {
  __shared__ unsigned tile[kColumns ? kTileColumns : 1][kRowWords + 1];
  __shared__ unsigned scratch[32];
  const float magnitude = in.known != nullptr && *in.known > 0.0f ? *in.known : *in.largest;
  const float scale = scale_for<kKind>(magnitude);
  const float inverse = __frcp_rn(scale);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *in.scale = scale;
  const int group = static_cast<int>(threadIdx.x) % kColumnGroups;
  const int word = static_cast<int>(threadIdx.x) / kColumnGroups;
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * kTileRows + word * 4;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kTileColumns + group * kGroup;
  unsigned bytes[4][2] = {};  // of a row: two words of 4 columns
  unsigned most = 0;
  if (column < in.columns) {
    float values[4][kGroup] = {};
    load_rows<T, kSeen>(in, row0, column, values, most);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        const float* v = values[r] + 4 * w;
        bytes[r][w] = pack4<kKind>(v[0], v[1], v[2], v[3], inverse);
      }
    }
    if constexpr (kRows) store_rows(in, row0, column, bytes);
  }
  if constexpr (kSeen) raise_seen(in.seen, most, scratch);
  if constexpr (kColumns) {
    turn_round(bytes, group, word, tile);
    __syncthreads();
    store_columns<kTileColumns>(in, tile);
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

// A block casts kTile x kTile. A thread holds kGroup rows of kGroup neighbours; kLanes threads, of
// one half of a warp, share rows.
constexpr int kTile = 128;
constexpr int kLanes = kTile / kGroup;
static_assert(kLanes * kLanes == kThreads && kTile == kTileRows);

// 1 / scale of a block.
template <Fp8Kind kKind>
__device__ __forceinline__ float block_inverse(unsigned largest_bits) {
  constexpr float kLargestInverse = 1.0f / FLT_MIN;
  const float largest = __uint_as_float(largest_bits);
  const float ratio = __fdiv_rn(Format<kKind>::kLargest, largest);
  const float power = __uint_as_float(__float_as_uint(ratio) & 0x7f800000u);
  return __fadd_rn(fminf(power, kLargestInverse), __fsub_rn(largest, largest));
}

// kGroup x kGroup values at (row0, column0); zeros beyond the edges.
template <typename T>
__device__ __forceinline__ void load_group(const Fp8BlockCast& in, std::int64_t row0,
                                           std::int64_t column0, float (&values)[kGroup][kGroup]) {
  constexpr int N = kVector<T> < kGroup ? kVector<T> : kGroup;
#pragma unroll
  for (int r = 0; r < kGroup; ++r) {
    const bool inside = row0 + r < in.rows && column0 < in.columns;
    const T* from = static_cast<const T*>(in.x) + (row0 + r) * in.columns + column0;
#pragma unroll
    for (int part = 0; part < kGroup; part += N) {
      Vec<T, N> v = {};
      if (inside) v = load<N>(from + part);
#pragma unroll
      for (int j = 0; j < N; ++j) values[r][part + j] = widen<float>(v.v[j]);
    }
  }
}

// Rows in order; with square blocks all under `square_inverse`.
template <Fp8Kind kKind, bool kSquare>
__device__ __forceinline__ void write_rows(const Fp8BlockCast& in, std::int64_t row0,
                                           std::int64_t column0,
                                           const float (&values)[kGroup][kGroup],
                                           float square_inverse) {
#pragma unroll
  for (int r = 0; r < kGroup; ++r) {
    float inverse = square_inverse;
    if constexpr (!kSquare) {
      unsigned most = 0;
#pragma unroll
      for (int c = 0; c < kGroup; ++c) most = max(most, magnitude_bits(values[r][c]));
#pragma unroll
      for (int offset = kLanes / 2; offset > 0; offset /= 2) {
        most = max(most, __shfl_xor_sync(0xffffffffu, most, offset));
      }
      inverse = block_inverse<kKind>(most);
    }
    if (row0 + r >= in.stored_rows || column0 >= in.columns) continue;
    if (!kSquare && column0 % kTile == 0) {
      in.row_scales[column0 / kTile * in.row_scale_step + row0 + r] = __frcp_rn(inverse);
    }
    const float* v = values[r];
    auto* to = static_cast<unsigned char*>(in.rows_out) + (row0 + r) * in.columns + column0;
    *reinterpret_cast<uint2*>(to) = make_uint2(pack4<kKind>(v[0], v[1], v[2], v[3], inverse),
                                               pack4<kKind>(v[4], v[5], v[6], v[7], inverse));
  }
}

// The inverse scales of the tile's columns, in `inverse`; their scales to memory.
template <Fp8Kind kKind>
__device__ __forceinline__ void scale_columns(const Fp8BlockCast& in,
                                              const float (&values)[kGroup][kGroup],
                                              unsigned (*most)[kTile], float* inverse) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int word = static_cast<int>(threadIdx.x) / kLanes;
#pragma unroll
  for (int c = 0; c < kGroup; ++c) {
    unsigned own = 0;
#pragma unroll
    for (int r = 0; r < kGroup; ++r) own = max(own, magnitude_bits(values[r][c]));
    most[word][lane * kGroup + c] = own;
  }
  __syncthreads();
  if (threadIdx.x < kTile) {
    unsigned all = 0;
#pragma unroll
    for (int w = 0; w < kLanes; ++w) all = max(all, most[w][threadIdx.x]);
    inverse[threadIdx.x] = block_inverse<kKind>(all);
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kTile + threadIdx.x;
    if (column < in.columns) {
      in.column_scales[blockIdx.y * in.column_scale_step + column] =
          __frcp_rn(inverse[threadIdx.x]);
    }
  }
  __syncthreads();
}

// Through `tile`, so that whole lines are written.
template <Fp8Kind kKind, bool kSquare>
__device__ __forceinline__ void write_columns(const Fp8BlockCast& in,
                                              const float (&values)[kGroup][kGroup],
                                              const float* inverse_of_columns, float square_inverse,
                                              unsigned (*tile)[kRowWords + 1]) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int word = static_cast<int>(threadIdx.x) / kLanes;
#pragma unroll
  for (int c = 0; c < kGroup; ++c) {
    const int column = lane * kGroup + c;
    const float inverse = kSquare ? square_inverse : inverse_of_columns[column];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      tile[column][2 * word + half] =
          pack4<kKind>(values[4 * half][c], values[4 * half + 1][c], values[4 * half + 2][c],
                       values[4 * half + 3][c], inverse);
    }
  }
  __syncthreads();
  store_columns<kTile>(in, tile);
}

template <typename T, Fp8Kind kKind, bool kSquare>
__global__ void __launch_bounds__(kThreads) block_cast_kernel(Fp8BlockCast in) {
  __shared__ unsigned tile[kTile][kRowWords + 1];
  __shared__ unsigned most_of_columns[kSquare ? 1 : kLanes][kTile];
  __shared__ float inverse_of_columns[kSquare ? 1 : kTile];
  __shared__ unsigned scratch[32];
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * kTile +
                            static_cast<int>(threadIdx.x) / kLanes * kGroup;
  const std::int64_t column0 = static_cast<std::int64_t>(blockIdx.x) * kTile +
                               static_cast<int>(threadIdx.x) % kLanes * kGroup;
  float values[kGroup][kGroup];
  load_group<T>(in, row0, column0, values);
  float square_inverse = 0.0f;
  if constexpr (kSquare) {
    unsigned most = 0;
#pragma unroll
    for (int r = 0; r < kGroup; ++r) {
#pragma unroll
      for (int c = 0; c < kGroup; ++c) most = max(most, magnitude_bits(values[r][c]));
    }
    square_inverse = block_inverse<kKind>(block_reduce(most, 0u, scratch, LargerBits{}));
    if (threadIdx.x == 0) {
      const float scale = __frcp_rn(square_inverse);
      if (in.rows_out != nullptr) {
        in.row_scales[blockIdx.y * in.row_scale_step + blockIdx.x] = scale;
      }
      if (in.columns_out != nullptr) {
        in.column_scales[blockIdx.x * in.column_scale_step + blockIdx.y] = scale;
      }
    }
  }
  if (in.rows_out != nullptr) {
    write_rows<kKind, kSquare>(in, row0, column0, values, square_inverse);
  }
  if (in.columns_out == nullptr) return;
  if constexpr (!kSquare) {
    scale_columns<kKind>(in, values, most_of_columns, inverse_of_columns);
  }
  write_columns<kKind, kSquare>(in, values, inverse_of_columns, square_inverse, tile);
}

template <typename T, Fp8Kind kKind>
cudaError_t launch_block_cast(const Fp8BlockCast& in, cudaStream_t stream) {
  const std::int64_t rows = std::max(in.rows_out != nullptr ? in.stored_rows : 0,
                                     in.columns_out != nullptr ? in.padded_rows : 0);
  const dim3 grid(static_cast<unsigned>((in.columns + kTile - 1) / kTile),
                  static_cast<unsigned>((rows + kTile - 1) / kTile));
  if (grid.x == 0 || grid.y == 0) return cudaSuccess;
  if (in.square) {
    block_cast_kernel<T, kKind, true><<<grid, kThreads, 0, stream>>>(in);
  } else {
    block_cast_kernel<T, kKind, false><<<grid, kThreads, 0, stream>>>(in);
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

cudaError_t launch_fp8_block_cast(const Fp8BlockCast& in, cudaStream_t stream) {
  return dispatch(in.type, [&](auto element) {
    using T = decltype(element);
    return in.format == Fp8Kind::kE4M3 ? launch_block_cast<T, Fp8Kind::kE4M3>(in, stream)
                                       : launch_block_cast<T, Fp8Kind::kE5M2>(in, stream);
  });
}

}  // namespace pentatron::kernels
