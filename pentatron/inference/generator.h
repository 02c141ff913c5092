// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pentatron/inference/sampler.h"
#include "pentatron/nn/kv_cache.h"
#include "pentatron/nn/stage.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::inference {

struct GenerationOptions {
  SamplingOptions sampling = {};
  std::int64_t max_new_tokens = 64;
  // Generation ends after one of them (it is not returned).
  std::vector<std::int32_t> stop_tokens = {};
  bool use_kv_cache = true;
};

struct CacheShape {
  std::int64_t num_layers = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_positions = 0;  // longest sequence the model can take
};

enum class FinishReason { kLength, kStopToken, kStopText };

struct Generated {
  std::vector<std::int32_t> tokens;  // without the prompt
  FinishReason reason = FinishReason::kLength;
};

// Called for each new token; false ends generation (kStopText).
using TokenSink = std::function<bool(std::int32_t token)>;

// Continues `prompt` (at least one token) with a whole model (one pipeline stage, one tensor rank)
// that is ready for evaluation. Prompt and new tokens together must fit max_positions: kConfig
// error otherwise, as for an empty prompt or sampling options out of range; kData for a token
// outside the vocabulary. `device`: where the model lies. With and without cache the tokens are the
// same.
[[nodiscard]] Generated generate(nn::Stage& model, const CacheShape& shape,
                                 const PrecisionPolicy& policy, std::int64_t vocab_size,
                                 const std::vector<std::int32_t>& prompt,
                                 const GenerationOptions& options, const TokenSink& sink = {},
                                 Device device = kCpu);

}  // namespace pentatron::inference
