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
