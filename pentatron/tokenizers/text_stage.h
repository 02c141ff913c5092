// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/tokenizers/aligned_text.h"
#include "pentatron/tokenizers/word_rules.h"

namespace pentatron::tokenizers {

// A normaliser of tokenizer.json: text in, text out. Linear in the text's length.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // `text` need not be valid UTF-8; bytes that are not stay as they are.
  [[nodiscard]] virtual std::string apply(std::string_view text) const = 0;
  // The same, with where each byte comes from.
  virtual void apply(AlignedText& text) const = 0;
};
using NormalizerPtr = std::unique_ptr<Normalizer>;

// A word on its way to the model.
struct Word {
  std::string text;
  bool at_start = false;  // it begins where the whole text does
  // Where in the original each byte of `text` comes from (AlignedText); empty where nobody asks.
  std::vector<TokenSpan> origins = {};
};

// A pre-tokeniser of tokenizer.json: cuts each word into words, and may change their text.
class WordSplitter {
 public:
  virtual ~WordSplitter() = default;
  // Appends the words of `word`; none of them is empty.
  virtual void split(Word word, std::vector<Word>& words) const = 0;

  // The rule that cuts every text as split() does; none where split() does anything else.
  [[nodiscard]] virtual std::optional<WordRule> rule() const { return std::nullopt; }
  // split() gives the word back as it is.
  [[nodiscard]] virtual bool keeps_words() const { return false; }
};
using WordSplitterPtr = std::unique_ptr<WordSplitter>;

// From the members "normalizer" and "pre_tokenizer" of a tokenizer.json; null gives nullptr. What
// is not supported throws kUnsupported naming it, what is malformed kData; `name` is the file's.
// Byte-level pre-tokenisers split only: their words are raw bytes.
[[nodiscard]] NormalizerPtr make_normalizer(const nlohmann::json& json, std::string_view name);
[[nodiscard]] WordSplitterPtr make_word_splitter(const nlohmann::json& json, std::string_view name);

// What BERT's tokenizers do: "BertNormalizer" and "BertPreTokenizer" of tokenizer.json.
struct BertNormalizerOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};
[[nodiscard]] NormalizerPtr make_bert_normalizer(const BertNormalizerOptions& options);
[[nodiscard]] WordSplitterPtr make_bert_word_splitter();

// A splitter by one regular expression whose matches are the words, gaps too (tiktoken's way:
// characters between matches are dropped when `drop_gaps`).
[[nodiscard]] WordSplitterPtr make_pattern_splitter(std::string_view pattern, bool drop_gaps);

}  // namespace pentatron::tokenizers
