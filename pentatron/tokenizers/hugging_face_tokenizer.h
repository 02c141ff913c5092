// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/tokenizers/staged_tokenizer.h"

namespace pentatron::tokenizers {

struct HuggingFaceOptions {
  bool include_special_tokens = true;            // the template's tokens around each text
  std::vector<std::string> special_tokens = {};  // added to the vocabulary if it has them not
  std::string chat_template = {};  // value of --chat-template, which names caches; empty: none
};

// Megatron's HuggingFaceTokenizer: `path` is a folder with tokenizer.json (and
// tokenizer_config.json, special_tokens_map.json, chat_template.jinja) or the file itself. The ids
// equal those of the `tokenizers` library. Throws kIo, kData ("file: what") and, for what a
// tokenizer.json holds and is not supported here, kUnsupported naming it.
[[nodiscard]] std::unique_ptr<StagedTokenizer> load_hugging_face_tokenizer(
    const std::filesystem::path& path, const HuggingFaceOptions& options = {});

// The stages of a tokenizer.json's content; `name` stands in messages.
[[nodiscard]] TokenizerStages parse_tokenizer_json(std::string_view text, std::string_view name);

}  // namespace pentatron::tokenizers
