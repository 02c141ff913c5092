// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pentatron/inference/model_runner.h"
#include "pentatron/inference/sampler.h"

namespace pentatron::inference {

struct GenerationOptions {
  SamplingOptions sampling = {};
  std::int64_t max_new_tokens = 64;
  // Generation ends after one of them (it is not returned).
  std::vector<std::int32_t> stop_tokens = {};
  bool use_kv_cache = true;
};

enum class FinishReason { kLength, kStopToken, kStopText };

struct Generated {
  std::vector<std::int32_t> tokens;  // without the prompt
  FinishReason reason = FinishReason::kLength;
};

// Called for each new token; false ends generation (kStopText).
using TokenSink = std::function<bool(std::int32_t token)>;

// Continues `prompt` (at least one token) with a model that is ready for evaluation; where it
// stands on several ranks all of them call with the same arguments and get the same tokens. Prompt
// and new tokens together must fit the model's positions: kConfig error otherwise, as for an empty
// prompt or sampling options out of range; kData for a token outside the vocabulary. With and
// without cache the tokens are the same.
[[nodiscard]] Generated generate(ModelRunner& model, std::int64_t vocab_size,
                                 const std::vector<std::int32_t>& prompt,
                                 const GenerationOptions& options, const TokenSink& sink = {});

}  // namespace pentatron::inference
