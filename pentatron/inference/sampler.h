// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pentatron::inference {

struct SamplingOptions {
  double temperature = 1.0;  // 0: greedy
  std::int64_t top_k = 0;    // tokens; 0: all, 1: greedy
  double top_p = 0.0;  // 0: off; else the smallest set of likeliest tokens with at least this mass
  std::uint64_t seed = 1234;
};

// ErrorKind::kConfig for values out of range (temperature in [0, 100], top_k up to vocab_size,
// top_p in [0, 1], not both top_k and top_p, as Megatron's server has it).
void check_sampling_options(const SamplingOptions& options, std::int64_t vocab_size);

// One token from unnormalised log-probabilities [vocabulary]. Draws are keyed by (seed, sequence,
// position): the same arguments give the same token, whatever was sampled before. Ties go to the
// lower id. Values that are not finite: kData error.
[[nodiscard]] std::int32_t sample_token(std::span<const float> logits,
                                        const SamplingOptions& options, std::int64_t sequence,
                                        std::int64_t position);

// The probabilities that sample_token draws from (0 for tokens cut off); sums to 1.
[[nodiscard]] std::vector<double> sampling_distribution(std::span<const float> logits,
                                                        const SamplingOptions& options);

}  // namespace pentatron::inference
