// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pentatron/tokenizers/merge_table.h"

namespace pentatron::tokenizers {

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// A byte-level BPE vocabulary: tokens as raw bytes, merges in order of rank. The files are GPT-2's:
// vocab.json (one object, visible token -> id) and merges.txt ("#version: 0.2", then one merge
// "left right" a line). Every vocabulary that exists is valid: ids dense from 0, all 256 bytes
// present, each merge's parts and product known, no merge twice, the end-of-document token there.
class BpeVocabulary final {
 public:
  // Limits on outside data, checked before memory is taken.
  static constexpr std::uint64_t kMaxFileBytes = 1ULL << 30;
  static constexpr std::int64_t kMaxTokens = 1 << 24;
  static constexpr std::size_t kMaxTokenBytes = 1 << 16;

  // Throws kIo for unreadable files, kData ("file:line: what") for invalid ones.
  [[nodiscard]] static BpeVocabulary load(const std::filesystem::path& vocab_file,
                                          const std::filesystem::path& merge_file,
                                          std::string_view eod_token = kEndOfText);
  // The same from text; the names stand in messages.
  [[nodiscard]] static BpeVocabulary parse(std::string_view vocab_json, std::string_view vocab_name,
                                           std::string_view merges_txt,
                                           std::string_view merges_name,
                                           std::string_view eod_token = kEndOfText);
  // From tokens (raw bytes, by id) and pairs of ids in order of rank.
  [[nodiscard]] static BpeVocabulary from_parts(
      std::vector<std::string> tokens,
      const std::vector<std::pair<std::int32_t, std::int32_t>>& merges,
      std::string_view eod_token = kEndOfText);
  // The same tokens with the merges of a text.
  [[nodiscard]] BpeVocabulary with_merges(std::string_view merges_txt,
                                          std::string_view merges_name) const;

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  [[nodiscard]] std::int32_t eod() const { return eod_; }
  [[nodiscard]] std::string_view eod_token() const {
    return tokens_[static_cast<std::size_t>(eod_)];
  }
  // Raw bytes of a token; `id` must lie in [0, size()).
  [[nodiscard]] const std::string& token(std::int32_t id) const {
    return tokens_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] const std::vector<std::string>& tokens() const { return tokens_; }
  [[nodiscard]] std::int32_t byte_id(std::uint8_t byte) const { return byte_ids_[byte]; }
  [[nodiscard]] std::size_t num_merges() const { return merges_.size(); }
  [[nodiscard]] std::pair<std::int32_t, std::int32_t> merge(std::size_t rank) const;

  // Tokens of several bytes that no merge makes, so that no text is ever encoded as them; without
  // the end-of-document token.
  [[nodiscard]] std::vector<std::int32_t> unmade_tokens() const;

  [[nodiscard]] const MergeTable& merges() const { return table_; }

  // Content of the two files, as load() reads them.
  [[nodiscard]] std::string vocab_json() const;
  [[nodiscard]] std::string merges_txt() const;
  // Writes both; each file is the old one or the new one. Throws kIo.
  void save(const std::filesystem::path& vocab_file, const std::filesystem::path& merge_file) const;

  // SHA-256 over tokens in order of id and merges in order of rank.
  [[nodiscard]] std::string identity_hash() const;

 private:
  using Index = std::unordered_map<std::string, std::int32_t>;

  BpeVocabulary() = default;
  // Takes the tokens, finds the bytes and the end-of-document token; `name` stands in messages.
  void set_tokens(std::vector<std::string> tokens, std::string_view name,
                  std::string_view eod_token);
  [[nodiscard]] Index token_index(std::string_view name) const;
  void reserve_merges(std::size_t count);
  void add_merge(std::int32_t left, std::int32_t right, const Index& index, std::string_view name,
                 std::size_t line);
  void parse_merges(std::string_view text, std::string_view name, const Index& index);

  std::vector<std::string> tokens_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<std::uint64_t> merges_;  // pair keys by rank
  MergeTable table_;
  std::int32_t eod_ = -1;
};

}  // namespace pentatron::tokenizers
