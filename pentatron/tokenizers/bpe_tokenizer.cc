// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/bpe_tokenizer.h"

#include <array>

#include "pentatron/base/error.h"

namespace pentatron::tokenizers {
namespace {

std::array<std::int32_t, 256> byte_ids_of(const BpeVocabulary& vocabulary) {
  std::array<std::int32_t, 256> ids{};
  for (std::size_t byte = 0; byte < ids.size(); ++byte) {
    ids[byte] = vocabulary.byte_id(static_cast<std::uint8_t>(byte));
  }
  return ids;
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary, std::size_t cache_slots)
    : vocabulary_(std::move(vocabulary)),
      encoder_(vocabulary_.tokens(), byte_ids_of(vocabulary_), vocabulary_.merges(), false,
               cache_slots) {}

BpeTokenizer::BpeTokenizer(const std::filesystem::path& vocab_file,
                           const std::filesystem::path& merge_file)
    : BpeTokenizer(BpeVocabulary::load(vocab_file, merge_file)) {
  vocab_file_ = vocab_file.string();
  merge_file_ = merge_file.string();
}

void BpeTokenizer::do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                             SpecialTokens special) const {
  BpeWork work;
  encode_counted(text, ids, special, work);
}

void BpeTokenizer::encode_counted(std::string_view text, std::vector<std::int32_t>& ids,
                                  SpecialTokens special, BpeWork& work) const {
  if (special == SpecialTokens::kParse) {
    const std::string_view eod_text = vocabulary_.eod_token();
    for (std::size_t found = text.find(eod_text); found != std::string_view::npos;
         found = text.find(eod_text)) {
      encoder_.encode(WordRule::kGpt2, text.substr(0, found), ids, work);
      ids.push_back(vocabulary_.eod());
      text.remove_prefix(found + eod_text.size());
    }
  }
  encoder_.encode(WordRule::kGpt2, text, ids, work);
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string bytes;
  for (const std::int32_t id : ids) {
    PENTATRON_CHECK(id >= 0 && id < vocabulary_.size(), kData,
                    "token id {} is outside the vocabulary of {} ids", id, vocabulary_.size());
    bytes += vocabulary_.token(id);
  }
  return bytes;
}

std::optional<std::int32_t> BpeTokenizer::token_id(std::string_view token) const {
  for (std::int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (vocabulary_.token(id) == token) return id;
  }
  return std::nullopt;
}

TokenizerDescription BpeTokenizer::description() const {
  // Megatron's keywords for this type, with the values that its defaults give.
  return {.class_name = std::string(kMegatronTextClass),
          .tokenizer_path = "GPT2BPETokenizer",
          .arguments = {{"additional_special_tokens", "[]"},
                        {"vocab_file", vocab_file_.empty() ? "None" : vocab_file_},
                        {"merges_file", merge_file_.empty() ? "None" : merge_file_},
                        {"use_fast", "True"},
                        {"trust_remote_code", "False"},
                        {"include_special_tokens", "True"}}};
}

}  // namespace pentatron::tokenizers
