// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/embedding.h"

#include "pentatron/kernels/common.cuh"

namespace pentatron::kernels {
namespace {

// Rows as units of U: 16 bytes where everything is aligned, else 2.
template <typename U>
__global__ void gather_kernel(const std::int64_t* __restrict__ ids, std::int64_t tokens,
                              const U* __restrict__ table, std::int64_t units,
                              std::int64_t row_begin, std::int64_t rows, U* __restrict__ out) {
  for (std::int64_t t = blockIdx.x; t < tokens; t += gridDim.x) {
    const std::int64_t row = ids[t] - row_begin;
    const bool here = row >= 0 && row < rows;
    for (std::int64_t i = threadIdx.x; i < units; i += blockDim.x) {
      out[t * units + i] = here ? table[row * units + i] : U{};
    }
  }
}

template <typename U>
cudaError_t gather_of(const std::int64_t* ids, std::int64_t tokens, const void* table,
                      std::int64_t row_bytes, std::int64_t row_begin, std::int64_t rows, void* out,
                      cudaStream_t stream) {
  const std::int64_t units = row_bytes / static_cast<std::int64_t>(sizeof(U));
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(tokens, 1 << 20));
  gather_kernel<U><<<blocks, threads_for_row(units, 256), 0, stream>>>(
      ids, tokens, static_cast<const U*>(table), units, row_begin, rows, static_cast<U*>(out));
  return cudaGetLastError();
}

// One past the last place of sorted_ids[place]'s value.
__device__ std::int64_t run_end(const std::int64_t* sorted_ids, std::int64_t tokens,
                                std::int64_t place) {
  const std::int64_t id = sorted_ids[place];
  std::int64_t low = place + 1, high = tokens;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (sorted_ids[middle] == id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A block a place in the sorted ids; the block of an id's first place sums the whole run.
template <typename T, typename S, int V>
__global__ void scatter_kernel(ScatterArguments a, const T* __restrict__ dy, S* __restrict__ slot) {
  using C = ComputeOf<S>;
  constexpr int kAhead = 4;  // rows whose loads are under way at a time
  const std::int64_t place = blockIdx.x;
  const std::int64_t row = a.sorted_ids[place] - a.row_begin;
  if (row < 0 || row >= a.rows) return;
  if (place > 0 && a.sorted_ids[place - 1] == a.sorted_ids[place]) return;
  const std::int64_t end = run_end(a.sorted_ids, a.tokens, place);
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * V; c < a.columns;
       c += static_cast<std::int64_t>(blockDim.x) * V) {
    S* target = slot + row * a.columns + c;
    Vec<S, V> held = load<V>(target);
    // A slot of 16 bits would lose small terms one by one: its value joins last.
    constexpr bool kLast = sizeof(S) == 2;
    C sum[V];
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] = kLast ? C(0) : widen<C>(held.v[i]);
    std::int64_t q = place;
    for (; q + kAhead <= end; q += kAhead) {
      Vec<T, V> in[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) in[k] = load<V>(dy + a.order[q + k] * a.columns + c);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += widen<C>(in[k].v[i]);
      }
    }
    for (; q < end; ++q) {
      const Vec<T, V> in = load<V>(dy + a.order[q] * a.columns + c);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += widen<C>(in.v[i]);
    }
#pragma unroll
    for (int i = 0; i < V; ++i) {
      held.v[i] = narrow<S>(kLast ? widen<C>(held.v[i]) + sum[i] : sum[i]);
    }
    store<V>(target, held);
  }
}

}  // namespace

cudaError_t gather_rows(const std::int64_t* ids, std::int64_t tokens, const void* table,
                        std::int64_t row_bytes, std::int64_t row_begin, std::int64_t rows,
                        void* out, cudaStream_t stream) {
  if (tokens == 0 || row_bytes == 0) return cudaSuccess;
  const auto* bytes = static_cast<const char*>(table);
  if (row_bytes % 16 == 0 && aligned16(bytes, static_cast<char*>(out))) {
    return gather_of<uint4>(ids, tokens, table, row_bytes, row_begin, rows, out, stream);
  }
  return gather_of<std::uint16_t>(ids, tokens, table, row_bytes, row_begin, rows, out, stream);
}

cudaError_t scatter_rows(Type type, const ScatterArguments& a, const void* dy, const Slot& slot,
                         cudaStream_t stream) {
  if (a.tokens == 0 || a.columns == 0) return cudaSuccess;
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    return dispatch(slot.type, [&](auto slot_tag) {
      using S = decltype(slot_tag);
      const auto* in = static_cast<const T*>(dy);
      auto* out = static_cast<S*>(slot.data);
      constexpr int V = kVector<T> < 4 ? kVector<T> : 4;
      const auto blocks = static_cast<unsigned>(a.tokens);
      const int threads = threads_for_row((a.columns + V - 1) / V, 256);
      if (a.columns % kVector<std::uint16_t> == 0 && aligned16(in, out)) {
        scatter_kernel<T, S, V><<<blocks, threads, 0, stream>>>(a, in, out);
      } else {
        scatter_kernel<T, S, 1><<<blocks, threads_for_row(a.columns, 256), 0, stream>>>(a, in, out);
      }
      return cudaGetLastError();
    });
  });
}

}  // namespace pentatron::kernels
