// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pentatron/tokenizers/bpe_trainer.h"
#include "pentatron/tokenizers/byte_alphabet.h"
#include "pentatron/tokenizers/pre_tokenizer.h"

// Helpers of this module's tests: texts, and slow implementations straight from the definitions.
namespace pentatron::tokenizers::testing {

using PairList = std::vector<std::pair<std::int32_t, std::int32_t>>;

inline std::string repeat(std::string_view piece, std::size_t count) {
  std::string text;
  text.reserve(piece.size() * count);
  for (std::size_t i = 0; i < count; ++i) text += piece;
  return text;
}

inline std::string utf8(char32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x800) return {static_cast<char>(0xC0 | (c >> 6)), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | (c >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | (c >> 18)), tail(12), tail(6), tail(0)};
}

// Random pieces that the pattern treats apart, random code points and (if asked) random bytes.
inline std::string random_text(std::mt19937& rng, std::size_t num_pieces, bool valid_utf8) {
  static const std::vector<std::string> kPieces = {" ",          "  ",
                                                   "\n",         "\t ",
                                                   "'s",         "'ll",
                                                   "'re",        "'x",
                                                   "'",          "a",
                                                   "the",        "Qu",
                                                   "1",          "42",
                                                   "!",          "--",
                                                   "\u00e9",     "\u0301",
                                                   "\u3000",     "\u00a0",
                                                   "\u2028",     "\u4e2d\u6587",
                                                   "\U0001F642", "\u0663",
                                                   "\u00bd",     "<|endoftext|>"};
  std::string text;
  for (std::size_t i = 0; i < num_pieces; ++i) {
    switch (rng() % (valid_utf8 ? 4 : 5)) {
      case 0: {
        char32_t c = rng() % 0x110000;
        if (c >= 0xD800 && c < 0xE000) c -= 0x1000;
        text += utf8(c);
        break;
      }
      case 4:
        text.push_back(static_cast<char>(rng() & 0xFF));
        break;
      default:
        text += kPieces[rng() % kPieces.size()];
    }
  }
  return text;
}

inline std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  PreTokenizer scanner(text);
  for (std::string_view word; scanner.next(word);) words.emplace_back(word);
  return words;
}

// A vocabulary that joins much of English-like text.
inline BpeVocabulary small_vocabulary() {
  BpeTrainer trainer;
  trainer.add_text(repeat(
      "The quick brown fox jumps over the lazy dog. It's what they'll say, isn't it?\n"
      "the then there these those other another   spaced    text 1234 12 345 --- !!! aaaa aa\n",
      3));
  trainer.add_text(repeat(" ", 40) + repeat("a", 40) + repeat("1", 40) + repeat("\u0301", 40));
  return trainer.train({.vocab_size = 420, .min_frequency = 2});
}

// It as a tokenizer.json with GPT-2's words.
inline nlohmann::json small_tokenizer_json() {
  using nlohmann::json;
  const BpeVocabulary vocabulary = small_vocabulary();
  json vocab = json::object();
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    vocab[bytes_to_visible(vocabulary.token(id))] = id;
  }
  json merges = json::array();
  for (std::size_t rank = 0; rank < vocabulary.num_merges(); ++rank) {
    const auto [left, right] = vocabulary.merge(rank);
    merges.push_back(bytes_to_visible(vocabulary.token(left)) + " " +
                     bytes_to_visible(vocabulary.token(right)));
  }
  return {{"version", "1.0"},
          {"added_tokens",
           {{{"id", vocabulary.eod()}, {"content", "<|endoftext|>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

// BPE by definition: again and again the merge of lowest rank, leftmost first.
inline std::vector<std::int32_t> slow_merge(const BpeVocabulary& vocabulary,
                                            std::string_view word) {
  std::vector<std::int32_t> ids;
  for (const char c : word) ids.push_back(vocabulary.byte_id(static_cast<std::uint8_t>(c)));
  for (;;) {
    const MergeTable::Merge* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto* merge = vocabulary.merges().find(ids[i], ids[i + 1]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        at = i;
      }
    }
    if (best == nullptr) return ids;
    ids[at] = best->product;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Training by definition: all pairs are counted afresh for every merge.
inline PairList slow_train(const std::vector<std::string>& texts, std::int64_t vocab_size,
                           std::int64_t min_frequency) {
  std::map<std::vector<std::int32_t>, std::int64_t> words;
  std::array<std::int32_t, 256> byte_ids{};
  std::int32_t next_id = 1;
  for (const std::uint8_t byte : alphabet_bytes()) byte_ids[byte] = next_id++;
  for (const std::string& text : texts) {
    for (const std::string& word : split(text)) {
      std::vector<std::int32_t> ids;
      for (const char c : word) ids.push_back(byte_ids[static_cast<std::uint8_t>(c)]);
      ++words[ids];
    }
  }
  PairList merges;
  for (; next_id < vocab_size; ++next_id) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> counts;
    for (const auto& [ids, count] : words) {
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) counts[{ids[i], ids[i + 1]}] += count;
    }
    auto best = counts.end();
    for (auto at = counts.begin(); at != counts.end(); ++at) {
      if (best == counts.end() || at->second > best->second) best = at;
    }
    if (best == counts.end() || best->second < min_frequency) break;
    const auto pair = best->first;
    merges.push_back(pair);
    std::map<std::vector<std::int32_t>, std::int64_t> merged_words;
    for (const auto& [ids, count] : words) {
      std::vector<std::int32_t> merged;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool here = i + 1 < ids.size() && std::pair(ids[i], ids[i + 1]) == pair;
        merged.push_back(here ? next_id : ids[i]);
        if (here) ++i;
      }
      merged_words[merged] += count;
    }
    words = std::move(merged_words);
  }
  return merges;
}

}  // namespace pentatron::tokenizers::testing
