// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {

// Megatron's NullTokenizer: the text is the ids themselves, decimal integers between white space.
// As in Megatron today: vocab_size is the number of ids as given, the end of document is
// vocab_size - 1 unless given, and there is no padding id (-1) unless given. (Releases before this
// rule counted one more id and put the end of document there: give vocab_size + 1 for those.)
class NullTokenizer final : public Tokenizer {
 public:
  // Throws kConfig unless 1 <= vocab_size < 2^31 and the ids lie inside it (pad_id may be -1).
  explicit NullTokenizer(std::int64_t vocab_size, std::optional<std::int64_t> eod_id = std::nullopt,
                         std::optional<std::int64_t> pad_id = std::nullopt);

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override;
  [[nodiscard]] std::vector<TokenSpan> spans(std::string_view text,
                                             std::span<const std::int32_t> ids) const override;
  [[nodiscard]] bool decodes_apart() const override { return false; }
  [[nodiscard]] std::optional<std::int32_t> token_id(std::string_view token) const override;
  [[nodiscard]] bool is_special(std::int32_t id) const override { return id == eod_ || id == pad_; }
  [[nodiscard]] std::int64_t vocab_size() const override { return vocab_size_; }
  [[nodiscard]] std::int32_t eod() const override { return eod_; }
  [[nodiscard]] std::int32_t pad() const override { return pad_; }
  [[nodiscard]] TokenizerDescription description() const override;
  [[nodiscard]] std::string identity_hash() const override;

 protected:
  void do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                 SpecialTokens special) const override;

 private:
  std::int64_t vocab_size_;
  std::optional<std::int64_t> given_eod_;
  std::optional<std::int64_t> given_pad_;
  std::int32_t eod_ = 0;
  std::int32_t pad_ = -1;
};

}  // namespace pentatron::tokenizers
