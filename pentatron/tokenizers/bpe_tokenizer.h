// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "pentatron/tokenizers/bpe_vocabulary.h"
#include "pentatron/tokenizers/byte_bpe.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {

// GPT-2's tokenizer (Megatron's GPT2BPETokenizer): pre-tokenizer, then byte-level BPE in each word.
// Any bytes can be encoded and come back from decode() unchanged; bytes that are not valid UTF-8
// count as symbols that are neither letter, number nor space. "<|endoftext|>" in the text is
// ordinary text unless SpecialTokens::kParse is asked for. Beginning, end of sequence and end of
// document are the same id; there is no padding id.
class BpeTokenizer final : public Tokenizer {
 public:
  // `cache_slots`: of each thread's WordCache, at most.
  explicit BpeTokenizer(BpeVocabulary vocabulary,
                        std::size_t cache_slots = WordCache::kDefaultSlots);
  // Throws kIo or kData as BpeVocabulary::load.
  BpeTokenizer(const std::filesystem::path& vocab_file, const std::filesystem::path& merge_file);

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override;
  [[nodiscard]] bool decodes_apart() const override { return true; }
  [[nodiscard]] std::optional<std::int32_t> token_id(std::string_view token) const override;
  [[nodiscard]] bool is_special(std::int32_t id) const override { return id == eod(); }
  [[nodiscard]] std::int64_t vocab_size() const override { return vocabulary_.size(); }
  [[nodiscard]] std::int32_t eod() const override { return vocabulary_.eod(); }
  [[nodiscard]] std::int32_t pad() const override { return -1; }
  [[nodiscard]] std::optional<std::int32_t> bos() const override { return vocabulary_.eod(); }
  [[nodiscard]] std::optional<std::int32_t> eos() const override { return vocabulary_.eod(); }
  [[nodiscard]] TokenizerDescription description() const override;
  [[nodiscard]] std::string identity_hash() const override { return vocabulary_.identity_hash(); }

  [[nodiscard]] const BpeVocabulary& vocabulary() const { return vocabulary_; }

  // encode_append that adds the work it did to `work`.
  void encode_counted(std::string_view text, std::vector<std::int32_t>& ids, SpecialTokens special,
                      BpeWork& work) const;

 protected:
  void do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                 SpecialTokens special) const override;

 private:
  BpeVocabulary vocabulary_;
  ByteBpe encoder_;
  std::string vocab_file_;
  std::string merge_file_;
};

}  // namespace pentatron::tokenizers
