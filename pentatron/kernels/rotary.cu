// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/rotary.h"

#include "pentatron/kernels/common.cuh"

namespace pentatron::kernels {
namespace {

constexpr unsigned kMostThreads = 128;
constexpr int kHeads = 4;  // of a thread, whose loads are under way together

// A block does one token at a time; a thread V pairs of channels of one head: channels i and half +
// i, or neighbours (kInterleaved, where V is 1).
template <typename T, int V, bool kInterleaved>
__global__ void rotate_kernel(RotaryArguments a, const T* __restrict__ x,
                              const ComputeOf<T>* __restrict__ cos,
                              const ComputeOf<T>* __restrict__ sin,
                              const std::int64_t* __restrict__ positions, ComputeOf<T> direction,
                              T* __restrict__ y) {
  using C = ComputeOf<T>;
  const int half = static_cast<int>(a.half), steps = half / V;
  const int rest = static_cast<int>(a.head_dim) - 2 * half;
  const int heads = static_cast<int>(a.heads);
  for (std::int64_t t = blockIdx.x; t < a.tokens; t += gridDim.x) {
    const std::int64_t position = positions[t];
    const bool known = position >= 0 && position < a.max_position;
    const std::int64_t angle = known ? position * a.half : 0;
    for (int j = static_cast<int>(threadIdx.x); j < heads * steps;
         j += static_cast<int>(blockDim.x)) {
      const int head = j / steps, i = j % steps * V;
      const int first_channel = kInterleaved ? 2 * i : i, apart = kInterleaved ? 1 : half;
      const T* in = x + t * a.token_stride + head * a.head_stride + first_channel;
      T* out = y + (t * a.heads + head) * a.head_dim + first_channel;
      const Vec<T, V> first = load<V>(in), second = load<V>(in + apart);
      const Vec<C, V> c = load<V>(cos + angle + i), s = load<V>(sin + angle + i);
      Vec<T, V> low, high;
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const C p = widen<C>(first.v[k]), q = widen<C>(second.v[k]);
        const C sine = known ? s.v[k] * direction : C(NAN);
        low.v[k] = narrow<T>(p * c.v[k] - q * sine);
        high.v[k] = narrow<T>(q * c.v[k] + p * sine);
      }
      store<V>(out, low);
      store<V>(out + apart, high);
    }
    for (int j = static_cast<int>(threadIdx.x); j < heads * rest;
         j += static_cast<int>(blockDim.x)) {
      const int head = j / rest, i = 2 * half + j % rest;
      y[(t * a.heads + head) * a.head_dim + i] = x[t * a.token_stride + head * a.head_stride + i];
    }
  }
}

// The same where rows stand at multiples of 16 bytes and halves are whole vectors: a thread has V
// pairs of channels i and half + i, whose angles it reads once for kHeads heads. Threads along x
// are the vectors of half a head, along y heads, along z tokens.
template <typename T, int V>
__global__ void rotate_vectors_kernel(RotaryArguments a, const T* __restrict__ x,
                                      const ComputeOf<T>* __restrict__ cos,
                                      const ComputeOf<T>* __restrict__ sin,
                                      const std::int64_t* __restrict__ positions,
                                      ComputeOf<T> direction, T* __restrict__ y) {
  using C = ComputeOf<T>;
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.z + threadIdx.z;
  if (t >= a.tokens) return;
  const int half = static_cast<int>(a.half), i = static_cast<int>(threadIdx.x) * V;
  const int heads = static_cast<int>(a.heads), step = static_cast<int>(blockDim.y);
  const T* in = x + t * a.token_stride;
  T* out = y + t * a.heads * a.head_dim;
  const std::int64_t position = positions[t];
  const bool known = position >= 0 && position < a.max_position;
  const std::int64_t angle = (known ? position * a.half : 0) + i;
  for (int begin = static_cast<int>(threadIdx.y); begin < heads; begin += kHeads * step) {
    Vec<T, V> first[kHeads], second[kHeads];
    // A head behind the last is the last one again, which is not stored: no branch stands between
    // the loads, and none waits for the angles.
#pragma unroll
    for (int n = 0; n < kHeads; ++n) {
      const int head = begin + n * step < heads ? begin + n * step : heads - 1;
      first[n] = load<V>(in + head * a.head_stride + i);
      second[n] = load<V>(in + head * a.head_stride + half + i);
    }
    const Vec<C, V> c = load<V>(cos + angle), s = load<V>(sin + angle);
#pragma unroll
    for (int n = 0; n < kHeads; ++n) {
      const int head = begin + n * step;
      Vec<T, V> low, high;
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const C p = widen<C>(first[n].v[k]), q = widen<C>(second[n].v[k]);
        const C sine = known ? s.v[k] * direction : C(NAN);
        low.v[k] = narrow<T>(p * c.v[k] - q * sine);
        high.v[k] = narrow<T>(q * c.v[k] + p * sine);
      }
      if (head >= heads) continue;
      store<V>(out + head * a.head_dim + i, low);
      store<V>(out + head * a.head_dim + half + i, high);
    }
  }
  const int rest = static_cast<int>(a.head_dim) - 2 * half;
  for (int c = i; c < rest; c += half) {
    for (int head = static_cast<int>(threadIdx.y); head < heads; head += step) {
      const int at = 2 * half + c;
      store<V>(out + head * a.head_dim + at, load<V>(in + head * a.head_stride + at));
    }
  }
}

// Threads of a block: vectors of half a head, heads, tokens.
dim3 block_of(std::int64_t vectors, std::int64_t heads) {
  const auto x = static_cast<unsigned>(vectors);
  const auto head_steps = static_cast<unsigned>((heads + kHeads - 1) / kHeads);
  const unsigned y = std::max(1u, std::min(head_steps, kMostThreads / x));
  return {x, y, std::min(64u, std::max(1u, kMostThreads / (x * y)))};
}

}  // namespace

cudaError_t rotate(Type type, const RotaryArguments& a, const void* x, const void* cos,
                   const void* sin, const std::int64_t* positions, double direction, void* y,
                   cudaStream_t stream) {
  if (a.tokens == 0 || a.heads == 0 || a.head_dim == 0) return cudaSuccess;
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    using C = ComputeOf<T>;
    const auto* in = static_cast<const T*>(x);
    const auto *c = static_cast<const C*>(cos), *s = static_cast<const C*>(sin);
    auto* out = static_cast<T*>(y);
    constexpr int V = kVector<T>;
    // Rows of the tables hold `half` elements, so they start at multiples of 16 bytes too.
    const bool whole = !a.interleaved && a.half % V == 0 && a.head_dim % V == 0 &&
                       a.head_stride % V == 0 && a.token_stride % V == 0 &&
                       aligned16(in, c, s, out);
    const std::int64_t pairs = a.heads * std::max<std::int64_t>(a.half / (whole ? V : 1), 1);
    const int threads = threads_for_row(pairs, 256);
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(a.tokens, 1 << 20));
    const auto turn = static_cast<C>(direction);
    if (whole && a.half > 0 && a.half / V <= kMostThreads) {
      const dim3 block = block_of(a.half / V, a.heads);
      const auto groups = static_cast<unsigned>((a.tokens + block.z - 1) / block.z);
      rotate_vectors_kernel<T, V><<<groups, block, 0, stream>>>(a, in, c, s, positions, turn, out);
    } else if (a.interleaved) {
      rotate_kernel<T, 1, true><<<blocks, threads, 0, stream>>>(a, in, c, s, positions, turn, out);
    } else {
      rotate_kernel<T, 1, false><<<blocks, threads, 0, stream>>>(a, in, c, s, positions, turn, out);
    }
    return cudaGetLastError();
  });
}

}  // namespace pentatron::kernels
