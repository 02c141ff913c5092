// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/samples.h"

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/log.h"
#include "pentatron/inference/generator.h"
#include "pentatron/tokenizers/streaming_decoder.h"

namespace pentatron::training {
namespace {

// What stands behind the prompt. Decoded alone, many tokenizers would drop the blank before it.
std::string text_behind(const tokenizers::Tokenizer& tokenizer,
                        const std::vector<std::int32_t>& prompt,
                        const std::vector<std::int32_t>& written) {
  tokenizers::StreamingDecoder decoder(tokenizer);
  for (const std::int32_t token : prompt) (void)decoder.add(token);
  std::string text;
  for (const std::int32_t token : written) text += decoder.add(token);
  return text + decoder.finish();
}

}  // namespace

void check_sample_prompts(const config::RunConfig& config, const tokenizers::Tokenizer& tokenizer) {
  for (const std::string& prompt : config.logging.sample_prompt) {
    const auto num_tokens = static_cast<std::int64_t>(tokenizer.encode(prompt).size());
    PENTATRON_CHECK(num_tokens > 0, kConfig,
                    "--sample-prompt {} has no token; give at least one character",
                    quoted_for_message(prompt));
    PENTATRON_CHECK(
        num_tokens + config.logging.sample_length <= config.model.max_position_embeddings, kConfig,
        "--sample-prompt {} has {} tokens; with --sample-length {} that is more than "
        "the model's {} positions: shorten one of them",
        quoted_for_message(prompt), num_tokens, config.logging.sample_length,
        config.model.max_position_embeddings);
  }
}

std::vector<Sample> write_samples(Engine& engine, const tokenizers::Tokenizer& tokenizer) {
  const config::RunConfig& config = engine.config();
  const inference::GenerationOptions options{.sampling = {.temperature = 0},
                                             .max_new_tokens = config.logging.sample_length,
                                             .stop_tokens = {tokenizer.eod()}};
  inference::ModelRunner model(config, engine.stages(), engine.context(), engine.policy(),
                               engine.device());
  std::vector<Sample> samples;
  for (const std::string& prompt : config.logging.sample_prompt) {
    try {
      const std::vector<std::int32_t> tokens = tokenizer.encode(prompt);
      const inference::Generated written =
          inference::generate(model, tokenizer.vocab_size(), tokens, options);
      samples.push_back({.prompt = tokenizers::replace_invalid_utf8(prompt),
                         .text = text_behind(tokenizer, tokens, written.tokens)});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;
      log::warn("no sample after {}: {}", quoted_for_message(prompt), error.what());
    }
  }
  return samples;
}

}  // namespace pentatron::training
