// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/tiktoken_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"
#include "pentatron/tokenizers/base64.h"
#include "pentatron/tokenizers/bpe_model.h"
#include "pentatron/tokenizers/bpe_vocabulary.h"
#include "pentatron/tokenizers/json_fields.h"

namespace pentatron::tokenizers {
namespace {

// The expressions that Megatron's --tiktoken-pattern names.
constexpr std::string_view kV1 =
    R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kV2 =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<std::string_view, 7> kSpecialTokens = {"<unk>", "<s>",   "</s>", "<mask>",
                                                            "<pad>", "<cls>", "<sep>"};

std::vector<std::string> special_tokens(const TiktokenOptions& options) {
  std::vector<std::string> tokens = options.special_tokens;
  if (tokens.empty()) tokens.assign(kSpecialTokens.begin(), kSpecialTokens.end());
  for (const std::string_view needed : kSpecialTokens) {
    PENTATRON_CHECK(std::find(tokens.begin(), tokens.end(), needed) != tokens.end(), kConfig,
                    "--tokenizer-special-tokens must hold {} for TikTokenizer", needed);
  }
  PENTATRON_CHECK(std::ssize(tokens) <= options.num_special_tokens &&
                      options.num_special_tokens < options.vocab_size,
                  kConfig,
                  "TikTokenizer: {} special tokens, --tiktoken-num-special-tokens {} and "
                  "--vocab-size {} must be in ascending order",
                  tokens.size(), options.num_special_tokens, options.vocab_size);
  while (std::ssize(tokens) < options.num_special_tokens) {
    tokens.push_back(fmt::format("<SPECIAL_{}>", tokens.size()));
  }
  return tokens;
}

// Appends the tokens of text; as many as the vocabulary has room for.
void read_ranks(std::string_view text, std::string_view name, std::size_t count,
                std::vector<std::string>& tokens) {
  const nlohmann::json list = parse_json(text, name);
  PENTATRON_CHECK(list.is_array(), kData, "{}: not a list of tokens", name);
  PENTATRON_CHECK(list.size() >= count, kData,
                  "{}: {} tokens; --vocab-size less --tiktoken-num-special-tokens asks for {}",
                  name, list.size(), count);
  for (std::size_t rank = 0; rank < count; ++rank) {
    const nlohmann::json& entry = list[rank];
    PENTATRON_CHECK(member(entry, "rank", name) == rank, kData, "{}: entry {} has another rank",
                    name, rank);
    std::optional<std::string> bytes = base64_decoded(text_member(entry, "token_bytes", name));
    PENTATRON_CHECK(bytes && !bytes->empty() && bytes->size() <= BpeVocabulary::kMaxTokenBytes,
                    kData, "{}: entry {}: token_bytes is no base64 text of 1 to {} bytes", name,
                    rank, BpeVocabulary::kMaxTokenBytes);
    PENTATRON_CHECK(rank >= 256 || *bytes == std::string(1, static_cast<char>(rank)), kData,
                    "{}: entry {} is not the byte {}", name, rank, rank);
    tokens.push_back(std::move(*bytes));
  }
}

}  // namespace

TokenizerStages rank_stages(std::vector<std::string> tokens, std::int32_t first_id,
                            std::string_view pattern) {
  TokenizerStages stages;
  stages.splitter = make_pattern_splitter(pattern, true);
  // Ids below the first are special tokens, which are found in the text, not by the model.
  for (std::int32_t id = 0; id < first_id; ++id) tokens[static_cast<std::size_t>(id)].clear();
  stages.model = BpeModel::from_ranks(TokenList(std::move(tokens), "vocabulary"), first_id);
  stages.identity = fmt::format("ranks {} {}", pattern, stages.model->identity_hash());
  return stages;
}

std::unique_ptr<StagedTokenizer> load_tiktoken_tokenizer(const std::filesystem::path& path,
                                                         const TiktokenOptions& options) {
  return parse_tiktoken_tokenizer(read_text_file(path, BpeVocabulary::kMaxFileBytes), path.string(),
                                  options);
}

std::unique_ptr<StagedTokenizer> parse_tiktoken_tokenizer(std::string_view text,
                                                          const std::string& name,
                                                          const TiktokenOptions& options) {
  const std::vector<std::string> special = special_tokens(options);
  std::vector<std::string> tokens = special;
  read_ranks(text, name, static_cast<std::size_t>(options.vocab_size - options.num_special_tokens),
             tokens);
  const bool v1 = options.pattern == TiktokenPattern::kV1;
  TokenizerStages stages =
      rank_stages(std::move(tokens), static_cast<std::int32_t>(special.size()), v1 ? kV1 : kV2);
  std::string list;
  for (std::size_t id = 0; id < special.size(); ++id) {
    stages.added_tokens.push_back(
        {.id = static_cast<std::int32_t>(id), .content = special[id], .special = true});
  }
  for (const std::string& token : options.special_tokens) {
    list += (list.empty() ? "" : ", ") + python_repr(token);
  }
  const auto id_of = [&](std::string_view token) {
    return static_cast<std::int32_t>(std::find(special.begin(), special.end(), token) -
                                     special.begin());
  };
  TokenizerDescription description{
      .class_name = std::string(kMegatronTextClass),
      .tokenizer_path = name,
      .arguments = {
          {"chat_template", options.chat_template.empty() ? "None" : options.chat_template},
          {"pattern", v1 ? "v1" : "v2"},
          {"vocab_size", std::to_string(options.vocab_size)},
          {"num_special_tokens", std::to_string(options.num_special_tokens)},
          {"special_tokens", list.empty() ? "None" : "[" + list + "]"}}};
  return std::make_unique<StagedTokenizer>(
      std::move(stages),
      SpecialTokenIds{.bos = id_of("<s>"), .eos = id_of("</s>"), .pad = id_of("<pad>")},
      std::move(description), false);
}

}  // namespace pentatron::tokenizers
