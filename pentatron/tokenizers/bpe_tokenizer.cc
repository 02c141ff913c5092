// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/bpe_tokenizer.h"

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/pre_tokenizer.h"

namespace pentatron::tokenizers {

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary, std::size_t cache_slots)
    : vocabulary_(std::move(vocabulary)), merger_(vocabulary_.merges()), cache_(cache_slots) {}

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
      encode_plain(text.substr(0, found), ids, work);
      ids.push_back(vocabulary_.eod());
      text.remove_prefix(found + eod_text.size());
    }
  }
  encode_plain(text, ids, work);
}

void BpeTokenizer::encode_plain(std::string_view text, std::vector<std::int32_t>& ids,
                                BpeWork& work) const {
  PreTokenizer words(text);
  std::vector<std::int32_t> symbols;
  for (std::string_view word; words.next(word);) {
    ++work.words;
    if (cache_.recall(word, ids)) {
      ++work.cache_hits;
      continue;
    }
    symbols.clear();
    symbols.reserve(word.size());
    for (const char c : word) symbols.push_back(vocabulary_.byte_id(static_cast<std::uint8_t>(c)));
    merger_.merge(symbols, work);
    cache_.remember(word, symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }
  work.symbol_steps += words.steps();
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
