// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "apps/command.h"
#include "pentatron/tokenizers/tokenizer.h"

// The options of the tokenizer, for the commands that are not training programs.
namespace pentatron::apps {

// `required`: whether --tokenizer-type must be given.
[[nodiscard]] std::vector<Flags::Spec> tokenizer_flags(bool required);

// The tokenizer that the options name. Errors: those of tokenizers::make_tokenizer.
[[nodiscard]] std::unique_ptr<tokenizers::Tokenizer> tokenizer_of(const Flags& flags);

}  // namespace pentatron::apps
