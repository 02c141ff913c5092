// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <memory>

#include "pentatron/tokenizers/tokenizer.h"
#include "pentatron/tokenizers/unknown_stretches.h"

namespace pentatron::tokenizers {

// What Megatron's wrapper of the library does beyond it.
struct SentencePieceOptions {
  // Special tokens are ids of their own behind the model's, found wherever they stand in a text;
  // one that is a piece of the model is that piece. A space that the model puts behind one is left
  // out, decoded texts have spaces around them and none at their ends.
  bool legacy = false;
  // False: spaces that the model's normaliser would drop (at both ends, and after another) are
  // encoded, as Megatron marks them: each by a character that is taken out again. White space at
  // the end goes.
  bool ignore_extra_whitespaces = true;
  std::vector<std::string> special_tokens = {};  // legacy only
  std::string chat_template = {};  // value of --chat-template, which names caches; empty: none
};

// Megatron's SentencePieceTokenizer, GPTSentencePieceTokenizer and Llama2Tokenizer: a SentencePiece
// model file, read by the sentencepiece library (libpentatron_sentencepiece.so, which lies beside
// libpentatron.so and is opened here). encode adds neither beginning nor end. Control
// pieces ("</s>") in a text are ordinary text whatever SpecialTokens says, as in that library.
// Throws kIo and kData ("file: what").
class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& model_file,
                                  SentencePieceOptions options = {});
  ~SentencePieceTokenizer() override;

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override;
  // Through the model's normaliser: a span is what of the text became the piece. kUnsupported with
  // special tokens of `legacy` or marked spaces.
  [[nodiscard]] std::vector<TokenSpan> spans(std::string_view text,
                                             std::span<const std::int32_t> ids) const override;
  [[nodiscard]] bool decodes_apart() const override { return false; }
  [[nodiscard]] bool is_open(std::int32_t id) const override;
  [[nodiscard]] std::optional<std::int32_t> token_id(std::string_view token) const override;
  [[nodiscard]] bool is_special(std::int32_t id) const override;
  [[nodiscard]] std::int64_t vocab_size() const override;
  // The end-of-sentence piece; kData if the model has none.
  [[nodiscard]] std::int32_t eod() const override;
  [[nodiscard]] std::int32_t pad() const override;
  [[nodiscard]] std::optional<std::int32_t> bos() const override;
  [[nodiscard]] std::optional<std::int32_t> eos() const override;
  [[nodiscard]] TokenizerDescription description() const override;
  [[nodiscard]] std::string identity_hash() const override { return identity_hash_; }
  // The model takes several spaces for one.
  [[nodiscard]] bool drops_extra_spaces() const { return drops_extra_spaces_; }

 protected:
  void do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                 SpecialTokens special) const override;

 private:
  struct Model;
  // A special token of `legacy`, in the order of the options.
  struct Special {
    std::string text;
    std::int32_t id = 0;
  };

  void add_special_tokens();
  [[nodiscard]] bool marks_spaces() const {
    return drops_extra_spaces_ && !options_.ignore_extra_whitespaces;
  }
  void encode_plain(std::string_view text, std::vector<std::int32_t>& ids) const;
  void encode_as_it_is(std::string_view text, std::vector<std::int32_t>& ids) const;
  [[nodiscard]] ShortenedText shortened(std::string_view text) const;
  void encode_marked(std::string_view text, std::vector<std::int32_t>& ids) const;
  void encode_with_special(std::string_view text, std::vector<std::int32_t>& ids) const;
  [[nodiscard]] std::string decode_plain(std::span<const std::int32_t> ids) const;

  std::unique_ptr<Model> model_;
  SentencePieceOptions options_;
  std::vector<Special> special_;
  std::map<std::int32_t, std::string> special_by_id_;
  std::int32_t vocab_size_ = 0;  // special tokens included
  std::int32_t separator_ = 0;   // the piece of a space alone, or the unknown one
  std::size_t reach_ = 0;        // bytes of a text that decide on a piece
  bool drops_extra_spaces_ = false;
  std::string model_file_;
  std::string identity_hash_;
};

}  // namespace pentatron::tokenizers
