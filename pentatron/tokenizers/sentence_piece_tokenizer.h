// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {

// Megatron's SentencePieceTokenizer, GPTSentencePieceTokenizer and Llama2Tokenizer: a SentencePiece
// model file, read by the sentencepiece library (libpentatron_sentencepiece.so, which lies beside
// libpentatron.so and is opened here). encode adds neither beginning nor end. Control
// pieces ("</s>") in a text are ordinary text whatever SpecialTokens says, as in that library.
// Throws kIo and kData ("file: what").
class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& model_file);
  ~SentencePieceTokenizer() override;

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override;
  // Through the model's normaliser: a span is what of the text became the piece.
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

 protected:
  void do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                 SpecialTokens special) const override;

 private:
  struct Model;
  std::unique_ptr<Model> model_;
  std::string model_file_;
  std::string identity_hash_;
};

}  // namespace pentatron::tokenizers
