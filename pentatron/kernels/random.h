// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/types.h"

// Keyed random numbers (base/philox.h): the same bits as on the CPU.
namespace pentatron::kernels {

struct MaskKey {
  std::uint64_t site;       // Philox key
  std::uint32_t threshold;  // 16-bit draws from here on are kept
  std::int64_t channel_begin;
};

// y = keep ? x * factor : 0 for rows of `channels` elements (factor: 1 / (1 - p)); sample ids and
// token indices [rows].
[[nodiscard]] cudaError_t dropout(Type type, const void* x, void* y, const MaskKey& key,
                                  double factor, const std::int64_t* sample_ids,
                                  const std::int64_t* token_index, std::int64_t rows,
                                  std::int64_t channels, cudaStream_t stream);
// The mask itself, 0 or 1 a byte.
[[nodiscard]] cudaError_t dropout_keep_mask(std::uint8_t* keep, const MaskKey& key,
                                            const std::int64_t* sample_ids,
                                            const std::int64_t* token_index, std::int64_t rows,
                                            std::int64_t channels, cudaStream_t stream);

// Probabilities [heads, queries, keys], of which head 0 is head_begin of the model.
struct AttentionMask {
  std::uint64_t site;
  std::uint32_t threshold;
  std::int64_t head_begin, heads, queries, keys;
};
// p = kept ? p * factor : 0 in place; fp32 or fp64.
[[nodiscard]] cudaError_t drop_attention(Type type, void* p, const AttentionMask& mask,
                                         double factor, const std::int64_t* sample_ids_q,
                                         const std::int64_t* places_q, const std::int64_t* places_k,
                                         cudaStream_t stream);

// A box of initial values; unused dimensions come first, as size 1.
struct KeyedBox {
  static constexpr int kRank = 4;
  std::int64_t sizes[kRank], logical[kRank], offsets[kRank];
};
struct FillKey {
  bool normal;  // else uniform in [-1, 1)
  std::uint64_t seed, stream;
  double factor;
};
// out [sizes] = factor times the value of each global element, in fp64, rounded as the host rounds
// (16-bit types by way of fp32).
[[nodiscard]] cudaError_t fill_keyed(Type type, void* out, const FillKey& key, const KeyedBox& box,
                                     cudaStream_t stream);

struct RoundingKey {
  std::uint64_t site;
  std::int64_t step, bucket, first_element;
};
// bf16 bits of fp32 values, as tensor/random.h says.
[[nodiscard]] cudaError_t stochastic_round_bf16(const float* in, std::uint16_t* out,
                                                const RoundingKey& key, std::int64_t count,
                                                cudaStream_t stream);

// Philox4x32-10 itself, for known-answer tests: out[4 i + w] = word w for counter[4 i ..] and
// key[2 i ..].
[[nodiscard]] cudaError_t philox_words(const std::uint32_t* counters, const std::uint32_t* keys,
                                       std::uint32_t* out, std::int64_t count, cudaStream_t stream);

}  // namespace pentatron::kernels
