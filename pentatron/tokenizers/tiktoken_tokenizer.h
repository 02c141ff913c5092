// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/tokenizers/staged_tokenizer.h"

namespace pentatron::tokenizers {

enum class TiktokenPattern { kV1, kV2 };

struct TiktokenOptions {
  TiktokenPattern pattern = TiktokenPattern::kV2;
  std::int64_t vocab_size = 131'072;  // special tokens included
  std::int64_t num_special_tokens = 1000;
  // The first special tokens; the rest is filled up with <SPECIAL_n>. Empty: <unk> <s> </s> <mask>
  // <pad> <cls> <sep>, which must stand in any other list too.
  std::vector<std::string> special_tokens = {};
  std::string chat_template = {};  // value of --chat-template, which names caches; empty: none
};

// Megatron's TikTokenizer: `path` is a JSON list of {"rank", "token_bytes" (base64), "token_str"}
// in order of rank, the first 256 of them the bytes. Special tokens have the ids from 0, a token of
// text its rank after them. Throws kIo, kData ("file: what") and kConfig for options that do not
// fit.
[[nodiscard]] std::unique_ptr<StagedTokenizer> load_tiktoken_tokenizer(
    const std::filesystem::path& path, const TiktokenOptions& options = {});

// The same of a file's text; `name` stands for its path.
[[nodiscard]] std::unique_ptr<StagedTokenizer> parse_tiktoken_tokenizer(
    std::string_view text, const std::string& name, const TiktokenOptions& options = {});

// The stages of a list of tokens with byte-pair ranks (a .tiktoken file's way): ids are the ranks
// from `first_id` on.
[[nodiscard]] TokenizerStages rank_stages(std::vector<std::string> tokens, std::int32_t first_id,
                                          std::string_view pattern);

}  // namespace pentatron::tokenizers
