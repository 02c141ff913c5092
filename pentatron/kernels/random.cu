// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/random.h"

#include "pentatron/base/philox.h"
#include "pentatron/kernels/common.cuh"

namespace pentatron::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kDraws = 8;      // of one call
constexpr int kRowsAhead = 4;  // whose values are under way at a time

__device__ __forceinline__ PhiloxKey key_of(std::uint64_t site) {
  return {{static_cast<std::uint32_t>(site), static_cast<std::uint32_t>(site >> 32)}};
}

// Draws of eight global channels, `group` * 8 and on, of one row.
__device__ __forceinline__ PhiloxDraws mask_draws(std::uint64_t site, std::int64_t group,
                                                  std::int64_t token, std::int64_t sample) {
  const PhiloxWords counter = {
      {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(token),
       static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)}};
  return philox_draws(philox4x32_10(counter, key_of(site)));
}

template <typename T, int N>
__device__ __forceinline__ Vec<T, N> dropped(const Vec<T, N>& in, const PhiloxDraws& draws,
                                             std::uint32_t threshold, ComputeOf<T> factor) {
  using C = ComputeOf<T>;
  Vec<T, N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    out.v[i] = narrow<T>(draws.v[i] >= threshold ? widen<C>(in.v[i]) * factor : C(0));
  }
  return out;
}

// A thread does one group of eight global channels of kRowsAhead rows at a time; rows along
// blockIdx.y. For whole groups whose rows stand at multiples of 16 bytes.
template <typename T>
__global__ void dropout_kernel(const T* __restrict__ x, T* __restrict__ y, MaskKey key,
                               ComputeOf<T> factor, const std::int64_t* __restrict__ sample_ids,
                               const std::int64_t* __restrict__ token_index, std::int64_t rows,
                               std::int64_t channels) {
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t group = key.channel_begin / kDraws + own, first = own * kDraws;
  if (first >= channels) return;
  for (std::int64_t begin = std::int64_t{blockIdx.y} * kRowsAhead; begin < rows;
       begin += std::int64_t{gridDim.y} * kRowsAhead) {
    Vec<T, kDraws> in[kRowsAhead];
    std::int64_t token[kRowsAhead], sample[kRowsAhead];
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k) {
      const std::int64_t row = begin + k;
      if (row >= rows) continue;
      in[k] = load<kDraws>(x + row * channels + first);
      token[k] = token_index[row];
      sample[k] = sample_ids[row];
    }
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k) {
      const std::int64_t row = begin + k;
      if (row >= rows) continue;
      const PhiloxDraws draws = mask_draws(key.site, group, token[k], sample[k]);
      store<kDraws>(y + row * channels + first, dropped(in[k], draws, key.threshold, factor));
    }
  }
}

// element(place in the rows, draw) for the channels of a thread's group that are there, whatever
// the channels and places; rows along blockIdx.y.
template <typename F>
__device__ __forceinline__ void each_draw(const MaskKey& key,
                                          const std::int64_t* __restrict__ sample_ids,
                                          const std::int64_t* __restrict__ token_index,
                                          std::int64_t rows, std::int64_t channels, F element) {
  const std::int64_t group =
      key.channel_begin / kDraws + static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t first = group * kDraws - key.channel_begin;  // may be negative
  if (first >= channels) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const PhiloxDraws draws = mask_draws(key.site, group, token_index[row], sample_ids[row]);
#pragma unroll
    for (int i = 0; i < kDraws; ++i) {
      if (first + i < 0 || first + i >= channels) continue;
      element(row * channels + first + i, draws.v[i]);
    }
  }
}

// The same as dropout_kernel for any channels and places.
template <typename T>
__global__ void plain_dropout_kernel(const T* __restrict__ x, T* __restrict__ y, MaskKey key,
                                     ComputeOf<T> factor,
                                     const std::int64_t* __restrict__ sample_ids,
                                     const std::int64_t* __restrict__ token_index,
                                     std::int64_t rows, std::int64_t channels) {
  each_draw(key, sample_ids, token_index, rows, channels, [&](std::int64_t at, std::uint16_t draw) {
    const Vec<T, 1> one = {{x[at]}};
    y[at] = dropped(one, {{draw}}, key.threshold, factor).v[0];
  });
}

__global__ void keep_mask_kernel(std::uint8_t* __restrict__ keep, MaskKey key,
                                 const std::int64_t* __restrict__ sample_ids,
                                 const std::int64_t* __restrict__ token_index, std::int64_t rows,
                                 std::int64_t channels) {
  each_draw(key, sample_ids, token_index, rows, channels,
            [&](std::int64_t at, std::uint16_t draw) { keep[at] = draw >= key.threshold ? 1 : 0; });
}

// A thread does one group of eight elements of the bucket.
__global__ void stochastic_round_kernel(const float* __restrict__ in,
                                        std::uint16_t* __restrict__ out, RoundingKey key,
                                        std::int64_t count) {
  const std::int64_t first_group = key.first_element / kDraws;
  const std::int64_t groups = (key.first_element + count + kDraws - 1) / kDraws - first_group;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t g = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       g < groups; g += threads) {
    const std::int64_t group = first_group + g;
    const PhiloxWords counter = {
        {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(key.bucket),
         static_cast<std::uint32_t>(key.step), static_cast<std::uint32_t>(key.step >> 32)}};
    const PhiloxDraws draws = philox_draws(philox4x32_10(counter, key_of(key.site)));
    const std::int64_t first = group * kDraws - key.first_element;
#pragma unroll
    for (int i = 0; i < kDraws; ++i) {
      const std::int64_t at = first + i;
      if (at < 0 || at >= count) continue;
      const std::uint32_t bits = __float_as_uint(in[at]);
      const std::uint32_t rounded = (bits + draws.v[i]) >> 16;
      const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
      out[at] = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
    }
  }
}

// A thread does every so many keys of one query and head; the grid is [queries, heads].
template <typename T>
__global__ void drop_attention_kernel(T* __restrict__ p, AttentionMask mask, T factor,
                                      const std::int64_t* __restrict__ sample_ids_q,
                                      const std::int64_t* __restrict__ places_q,
                                      const std::int64_t* __restrict__ places_k) {
  const std::int64_t query = blockIdx.x, head = blockIdx.y;
  T* row = p + (head * mask.queries + query) * mask.keys;
  const auto sample = static_cast<std::uint64_t>(sample_ids_q[query]);
  const auto global_head = static_cast<std::uint32_t>(mask.head_begin + head);
  for (std::int64_t k = threadIdx.x; k < mask.keys; k += blockDim.x) {
    const std::int64_t place = places_k[k];
    const PhiloxWords counter = {{static_cast<std::uint32_t>(place / kDraws),
                                  static_cast<std::uint32_t>(places_q[query]),
                                  static_cast<std::uint32_t>(sample),
                                  (static_cast<std::uint32_t>(sample >> 32) << 20) ^ global_head}};
    const PhiloxDraws draws = philox_draws(philox4x32_10(counter, key_of(mask.site)));
    row[k] = draws.v[place % kDraws] >= mask.threshold ? row[k] * factor : T(0);
  }
}

// A thread does every so many elements.
template <typename T>
__global__ void fill_keyed_kernel(T* __restrict__ out, FillKey key, KeyedBox box,
                                  std::int64_t count) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += threads) {
    std::int64_t rest = i, index = 0, stride = 1;
#pragma unroll
    for (int d = KeyedBox::kRank; d-- > 0;) {
      index += (rest % box.sizes[d] + box.offsets[d]) * stride;
      rest /= box.sizes[d];
      stride *= box.logical[d];
    }
    const auto element = static_cast<std::uint64_t>(index);
    const double value = key.factor * (key.normal ? philox_normal(key.seed, key.stream, element)
                                                  : philox_centred(key.seed, key.stream, element));
    if constexpr (std::is_same_v<T, double>) {
      out[i] = value;
    } else {
      out[i] = narrow<T>(static_cast<float>(value));
    }
  }
}

__global__ void philox_kernel(const std::uint32_t* __restrict__ counters,
                              const std::uint32_t* __restrict__ keys,
                              std::uint32_t* __restrict__ out, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const PhiloxWords counter = {
      {counters[4 * i], counters[4 * i + 1], counters[4 * i + 2], counters[4 * i + 3]}};
  const PhiloxWords words = philox4x32_10(counter, {{keys[2 * i], keys[2 * i + 1]}});
#pragma unroll
  for (int w = 0; w < 4; ++w) out[4 * i + w] = words.v[w];
}

// Groups that channels [channel_begin, channel_begin + channels) touch, and rows.
dim3 mask_grid(const MaskKey& key, std::int64_t rows, std::int64_t channels, int threads) {
  const std::int64_t groups =
      (key.channel_begin + channels + kDraws - 1) / kDraws - key.channel_begin / kDraws;
  return {static_cast<unsigned>((groups + threads - 1) / threads),
          static_cast<unsigned>(std::min<std::int64_t>(rows, 32768))};
}

}  // namespace

cudaError_t dropout(Type type, const void* x, void* y, const MaskKey& key, double factor,
                    const std::int64_t* sample_ids, const std::int64_t* token_index,
                    std::int64_t rows, std::int64_t channels, cudaStream_t stream) {
  if (rows == 0 || channels == 0) return cudaSuccess;
  const dim3 grid = mask_grid(key, rows, channels, kThreads);
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const auto* in = static_cast<const T*>(x);
    auto* out = static_cast<T*>(y);
    const auto scale = static_cast<ComputeOf<T>>(factor);
    if (key.channel_begin % kDraws == 0 && channels % kDraws == 0 && aligned16(in, out)) {
      const dim3 whole(grid.x, (grid.y + kRowsAhead - 1) / kRowsAhead);
      dropout_kernel<T><<<whole, kThreads, 0, stream>>>(in, out, key, scale, sample_ids,
                                                        token_index, rows, channels);
    } else {
      plain_dropout_kernel<T><<<grid, kThreads, 0, stream>>>(in, out, key, scale, sample_ids,
                                                             token_index, rows, channels);
    }
    return cudaGetLastError();
  });
}

cudaError_t dropout_keep_mask(std::uint8_t* keep, const MaskKey& key,
                              const std::int64_t* sample_ids, const std::int64_t* token_index,
                              std::int64_t rows, std::int64_t channels, cudaStream_t stream) {
  if (rows == 0 || channels == 0) return cudaSuccess;
  keep_mask_kernel<<<mask_grid(key, rows, channels, kThreads), kThreads, 0, stream>>>(
      keep, key, sample_ids, token_index, rows, channels);
  return cudaGetLastError();
}

cudaError_t stochastic_round_bf16(const float* in, std::uint16_t* out, const RoundingKey& key,
                                  std::int64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  stochastic_round_kernel<<<grid_for(count / kDraws + 2, kThreads), kThreads, 0, stream>>>(
      in, out, key, count);
  return cudaGetLastError();
}

cudaError_t drop_attention(Type type, void* p, const AttentionMask& mask, double factor,
                           const std::int64_t* sample_ids_q, const std::int64_t* places_q,
                           const std::int64_t* places_k, cudaStream_t stream) {
  if (mask.heads == 0 || mask.queries == 0 || mask.keys == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(mask.queries), static_cast<unsigned>(mask.heads));
  const auto run = [&](auto tag) {
    using T = decltype(tag);
    drop_attention_kernel<T><<<grid, kThreads, 0, stream>>>(
        static_cast<T*>(p), mask, static_cast<T>(factor), sample_ids_q, places_q, places_k);
    return cudaGetLastError();
  };
  if (type == Type::kFloat) return run(float{});
  return type == Type::kDouble ? run(double{}) : cudaErrorInvalidValue;
}

cudaError_t fill_keyed(Type type, void* out, const FillKey& key, const KeyedBox& box,
                       cudaStream_t stream) {
  std::int64_t count = 1;
  for (const std::int64_t size : box.sizes) count *= size;
  if (count == 0) return cudaSuccess;
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    fill_keyed_kernel<T>
        <<<grid_for(count, kThreads), kThreads, 0, stream>>>(static_cast<T*>(out), key, box, count);
    return cudaGetLastError();
  });
}

cudaError_t philox_words(const std::uint32_t* counters, const std::uint32_t* keys,
                         std::uint32_t* out, std::int64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  philox_kernel<<<blocks, kThreads, 0, stream>>>(counters, keys, out, count);
  return cudaGetLastError();
}

}  // namespace pentatron::kernels
