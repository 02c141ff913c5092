// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/tokenizers/tokenizer.h"
#include "pentatron/training/engine.h"

namespace pentatron::training {

struct Sample {
  std::string prompt;
  std::string text;  // what the model wrote after it, valid UTF-8
};

// ErrorKind::kConfig unless every --sample-prompt has a token and fits the model with its
// continuation.
void check_sample_prompts(const config::RunConfig& config, const tokenizers::Tokenizer& tokenizer);

// What the model as it is now writes after each --sample-prompt: greedily, --sample-length tokens
// or up to the end of the document. Changes nothing. Every rank calls it and gets the same. A model
// whose logits are not finite writes nothing, and a warning says so.
[[nodiscard]] std::vector<Sample> write_samples(Engine& engine,
                                                const tokenizers::Tokenizer& tokenizer);

}  // namespace pentatron::training
