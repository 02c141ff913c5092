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

// From the member "pre_tokenizer" of a tokenizer.json; null gives nullptr. What is not supported
// throws kUnsupported naming it, what is malformed kData; `name` is the file's. Byte-level
// pre-tokenisers split only: their words are raw bytes.
[[nodiscard]] WordSplitterPtr make_word_splitter(const nlohmann::json& json, std::string_view name);

// "BertPreTokenizer" of tokenizer.json.
[[nodiscard]] WordSplitterPtr make_bert_word_splitter();

// A splitter by one regular expression whose matches are the words, gaps too (tiktoken's way:
// characters between matches are dropped when `drop_gaps`).
[[nodiscard]] WordSplitterPtr make_pattern_splitter(std::string_view pattern, bool drop_gaps);

}  // namespace pentatron::tokenizers
