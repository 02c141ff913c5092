// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <set>

#include "pentatron/tokenizers/added_tokens.h"
#include "pentatron/tokenizers/normalizer.h"
#include "pentatron/tokenizers/subword_model.h"
#include "pentatron/tokenizers/token_decoder.h"
#include "pentatron/tokenizers/tokenizer.h"
#include "pentatron/tokenizers/word_splitter.h"

namespace pentatron::tokenizers {

// The stages of a tokenizer: added tokens, normaliser, pre-tokeniser, model, tokens that a template
// puts around the text, decoder.
struct TokenizerStages {
  std::vector<AddedToken> added_tokens;
  NormalizerPtr normalizer;
  WordSplitterPtr splitter;  // null: the text is one word
  std::unique_ptr<SubwordModel> model;
  std::vector<std::int32_t> before;  // ids that stand before every text
  std::vector<std::int32_t> after;
  TokenDecoderPtr decoder;       // null: tokens are joined
  bool join_with_space = false;  // without a decoder: a space between tokens
  std::string identity;          // text that two equal tokenizers share and no two others
};

// What the files beside tokenizer.json say of the special tokens; ids, -1 where there is none.
struct SpecialTokenIds {
  std::int32_t bos = -1;
  std::int32_t eos = -1;
  std::int32_t pad = -1;
};

// A tokenizer made of stages: HuggingFaceTokenizer (tokenizer.json), TikTokenizer, BertWordPiece...
class StagedTokenizer final : public Tokenizer {
 public:
  // `include_template`: encode adds the ids of stages.before and stages.after.
  StagedTokenizer(TokenizerStages stages, const SpecialTokenIds& special,
                  TokenizerDescription description, bool include_template);

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override;
  [[nodiscard]] bool decodes_apart() const override;
  [[nodiscard]] bool is_open(std::int32_t id) const override;
  // Through normaliser and pre-tokeniser, as the `tokenizers` library tells it: whole characters of
  // the original, those of a character that became several tokens for each of them; what was put in
  // belongs to the character beside it. The bytes themselves where the tokenizer changes nothing.
  [[nodiscard]] std::vector<TokenSpan> spans(std::string_view text,
                                             std::span<const std::int32_t> ids) const override;
  [[nodiscard]] std::optional<std::int32_t> token_id(std::string_view token) const override;
  [[nodiscard]] bool is_special(std::int32_t id) const override;
  [[nodiscard]] std::int64_t vocab_size() const override { return vocab_size_; }
  // The end of sequence; kData where the files name none.
  [[nodiscard]] std::int32_t eod() const override;
  [[nodiscard]] std::int32_t pad() const override { return special_.pad; }
  [[nodiscard]] std::optional<std::int32_t> bos() const override;
  [[nodiscard]] std::optional<std::int32_t> eos() const override;
  [[nodiscard]] TokenizerDescription description() const override { return description_; }
  [[nodiscard]] std::string identity_hash() const override { return identity_hash_; }
  // The chat template of tokenizer_config.json or chat_template.jinja; empty if there is none.
  [[nodiscard]] const std::string& chat_template() const { return chat_template_; }
  void set_chat_template(std::string text) { chat_template_ = std::move(text); }

 protected:
  void do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                 SpecialTokens special) const override;

 private:
  // Calls piece(text, at its beginning) for what lies between added tokens, and appends their ids.
  template <typename Piece>
  static void split_at_tokens(const AddedTokenFinder& finder, std::string_view text,
                              bool with_special, std::vector<std::int32_t>& ids, Piece&& piece);
  void encode_text(std::string_view text, bool at_start, bool with_special,
                   std::vector<std::int32_t>& ids) const;
  void encode_normalized(std::string_view text, bool at_start,
                         std::vector<std::int32_t>& ids) const;
  // The same with places (staged_spans.cc).
  struct Traced {
    std::vector<std::int32_t> ids;
    std::vector<TokenSpan> spans;
  };
  [[nodiscard]] Traced trace(std::string_view text, bool with_special) const;
  void trace_text(AlignedText text, bool at_start, bool with_special, Traced& traced) const;
  void trace_normalized(Word text, Traced& traced) const;

  TokenizerStages stages_;
  SpecialTokenIds special_;
  TokenizerDescription description_;
  bool include_template_;
  AddedTokenFinder plain_;                     // looked for in the text as it is
  AddedTokenFinder normalized_;                // looked for in the normalised text
  std::map<std::int32_t, std::string> added_;  // content by id
  std::set<std::int32_t> special_ids_;
  std::int64_t vocab_size_ = 0;
  std::string identity_hash_;
  std::string chat_template_;
  std::optional<WordRule> rule_;  // words and model in one go, by byte_bpe()
};

}  // namespace pentatron::tokenizers
