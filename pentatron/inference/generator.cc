// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/generator.h"

#include <algorithm>

#include "pentatron/base/error.h"

namespace pentatron::inference {

Generated generate(ModelRunner& model, std::int64_t vocab_size,
                   const std::vector<std::int32_t>& prompt, const GenerationOptions& options,
                   const TokenSink& sink) {
  check_sampling_options(options.sampling, vocab_size);
  PENTATRON_CHECK(!prompt.empty(), kConfig, "the prompt has no token; give at least one character");
  // No sum of what may be as large as a number can be.
  const std::int64_t room = model.max_positions() - static_cast<std::int64_t>(prompt.size());
  PENTATRON_CHECK(
      options.max_new_tokens <= room, kConfig,
      "{} prompt tokens and {} new ones are more than the model's {} positions; shorten the prompt "
      "or --max-new-tokens",
      prompt.size(), options.max_new_tokens, model.max_positions());
  for (const std::int32_t token : prompt) {
    PENTATRON_CHECK(token >= 0 && token < vocab_size, kData,
                    "prompt token {} is outside the vocabulary of {}", token, vocab_size);
  }
  const std::int64_t total = static_cast<std::int64_t>(prompt.size()) + options.max_new_tokens;
  model.begin(total, options.use_kv_cache);
  std::vector<std::int32_t> sequence = prompt;
  Generated result;
  for (std::int64_t step = 0; step < options.max_new_tokens; ++step) {
    std::vector<float> logits = model.next_logits(sequence);
    logits.resize(static_cast<std::size_t>(vocab_size));
    const std::int32_t token = sample_token(logits, options.sampling, /*sequence=*/0,
                                            static_cast<std::int64_t>(sequence.size()));
    if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) !=
        options.stop_tokens.end()) {
      result.reason = FinishReason::kStopToken;
      return result;
    }
    sequence.push_back(token);
    result.tokens.push_back(token);
    if (sink && !sink(token)) {
      result.reason = FinishReason::kStopText;
      return result;
    }
  }
  return result;
}

}  // namespace pentatron::inference
