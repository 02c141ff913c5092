// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentatron::tokenizers {

// What encode does with the text of a special token ("<|endoftext|>") that stands in the input.
enum class SpecialTokens {
  kAsText,  // encoded like any other text, so that a document cannot forge an end of document
  kParse,   // becomes the special token's id
};

// What Megatron hashes into the names of its index caches: the tokenizer's class, its path and
// its constructor keywords, each as a string, in the order of the constructor call.
struct TokenizerDescription {
  std::string class_name;
  std::optional<std::string> tokenizer_path;
  std::vector<std::pair<std::string, std::string>> arguments;
};

// Class names that Megatron writes: the newer one is the one to write; both are found.
inline constexpr std::string_view kMegatronTextClass =
    "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText";
inline constexpr std::string_view kMegatronTextClass0161 =
    "megatron.core.tokenizers.text.models.default_tokenizer.DefaultTokenizerText";

// The description as Python's json.dumps(indent=4) prints it when the object stands `depth` levels
// deep: inner lines are indented 4 * (depth + 1) columns, the closing brace 4 * depth.
[[nodiscard]] std::string description_json(const TokenizerDescription& description, int depth = 0);

// Text that is valid UTF-8: every ill-formed sequence (maximal subpart) becomes U+FFFD.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view bytes);

// Bytes [begin, end) of a text that a token stands for; empty for a token that a template added.
struct TokenSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const TokenSpan&) const = default;
};

// Text to token ids and back. Const methods may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of `text`; no beginning or end token is added. Throws kData if the text has no encoding.
  [[nodiscard]] std::vector<std::int32_t> encode(
      std::string_view text, SpecialTokens special = SpecialTokens::kAsText) const;
  // The same, appended to `ids`.
  void encode_append(std::string_view text, std::vector<std::int32_t>& ids,
                     SpecialTokens special = SpecialTokens::kAsText) const;

  // Bytes of the ids; they need not be valid UTF-8 (a token may hold part of a character).
  // Throws kData for an id outside [0, vocab_size).
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // decode(), then replace_invalid_utf8().
  [[nodiscard]] std::string decode_utf8(std::span<const std::int32_t> ids) const;

  // Where each of `ids`, which encode(text) gave, stands in the text. Of byte-level kinds in order
  // and without gaps, but for white space beside special tokens; where a normaliser changes the
  // text first, tokens stand for what they were made of, which several may share. kData for ids
  // of another text.
  [[nodiscard]] virtual std::vector<TokenSpan> spans(std::string_view text,
                                                     std::span<const std::int32_t> ids) const;

  // decode() of a list is that of its ids, one after the other.
  [[nodiscard]] virtual bool decodes_apart() const { return false; }
  // What decode() makes of this id may still change with the ids after it; only where
  // decodes_apart() is false.
  [[nodiscard]] virtual bool is_open(std::int32_t /*id*/) const { return false; }

  // The id of a token as the vocabulary writes it (bytes, not their visible form), special tokens
  // too; none where there is no such token.
  [[nodiscard]] virtual std::optional<std::int32_t> token_id(std::string_view /*token*/) const {
    return std::nullopt;
  }
  // Whether the id is a special token, which is no part of a document's text.
  [[nodiscard]] virtual bool is_special(std::int32_t /*id*/) const { return false; }

  // Number of ids, special tokens included; without padding for tensor parallelism.
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  // End of document.
  [[nodiscard]] virtual std::int32_t eod() const = 0;
  // Padding; -1 if the vocabulary has none.
  [[nodiscard]] virtual std::int32_t pad() const = 0;
  // Beginning and end of sequence, where the vocabulary names them. They may be the same id.
  [[nodiscard]] virtual std::optional<std::int32_t> bos() const { return std::nullopt; }
  [[nodiscard]] virtual std::optional<std::int32_t> eos() const { return std::nullopt; }

  [[nodiscard]] virtual TokenizerDescription description() const = 0;
  // SHA-256 over all that decides the ids (never over paths): equal hashes encode equally.
  [[nodiscard]] virtual std::string identity_hash() const = 0;

 protected:
  Tokenizer() = default;
  virtual void do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                         SpecialTokens special) const = 0;
};

}  // namespace pentatron::tokenizers
