// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/tokenizers/bpe_vocabulary.cc pentatron/tokenizers/bpe_tokenizer.cc pentatron/tokenizers/bpe_merger.cc pentatron/tokenizers/word_cache.cc pentatron/tokenizers/pre_tokenizer.cc pentatron/tokenizers/byte_alphabet.cc pentatron/tokenizers/tokenizer.cc pentatron/base/error.cc pentatron/base/env.cc pentatron/base/file.cc pentatron/base/stop_cleanup.cc pentatron/base/fault.cc pentatron/base/sha256.cc pentatron/base/hash_kernels.cc
// sources: pentatron/base/screen.cc pentatron/base/terminal.cc pentatron/base/mapping_faults.cc pentatron/tokenizers/byte_bpe.cc pentatron/tokenizers/char_kinds.cc pentatron/tokenizers/pair_table.cc pentatron/tokenizers/code_point_set.cc pentatron/base/printable.cc
// libs: icuuc fmt crypto
// clang-format on
//
// The first byte chooses, modulo 3. 0: the rest is vocab.json, a zero byte, merges.txt, a zero
// byte, text. 1: a list of merges (two bytes each, parts by number) up to a zero byte pair, then
// text; the vocabulary is always valid then, so that the encoder is reached. 2: merges.txt for a
// fixed vocabulary of all words of a, b, c, d up to three letters, a zero byte, text. Properties:
// only Error is thrown, and with kind data; the text comes back; what is written reads back the
// same.
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/bpe_tokenizer.h"
#include "pentatron/tokenizers/byte_alphabet.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

namespace {

namespace tokenizers = pentatron::tokenizers;
using tokenizers::BpeVocabulary;

// The part up to the next zero byte, which is dropped.
std::string_view take_part(std::string_view& data) {
  const std::size_t zero = data.find('\0');
  const std::string_view part = data.substr(0, zero);
  data.remove_prefix(zero == std::string_view::npos ? data.size() : zero + 1);
  return part;
}

BpeVocabulary vocabulary_of_merges(std::string_view& data) {
  std::vector<std::string> tokens{std::string(tokenizers::kEndOfText)};
  for (const std::uint8_t byte : tokenizers::alphabet_bytes()) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::unordered_map<std::string, std::size_t> known;
  for (std::size_t id = 0; id < tokens.size(); ++id) known.emplace(tokens[id], id);
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
  std::unordered_map<std::uint64_t, bool> used;
  while (data.size() >= 2) {
    const auto first = static_cast<std::uint8_t>(data[0]);
    const auto second = static_cast<std::uint8_t>(data[1]);
    data.remove_prefix(2);
    if (first == 0 && second == 0) break;
    // Above 127: counted back from the newest token, so that merges build on each other.
    const auto part = [&](std::uint8_t number) {
      const std::size_t id =
          number < 128 ? std::size_t{1} + number : tokens.size() - 1 - (number - std::size_t{128});
      return static_cast<std::int32_t>(id);
    };
    const std::int32_t left = part(first);
    const std::int32_t right = part(second);
    std::string joined =
        tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
    if (joined.size() > 64 ||
        !used.emplace(pentatron::tokenizers::MergeTable::pair_key(left, right), true).second)
      continue;
    if (known.emplace(joined, tokens.size()).second) tokens.push_back(std::move(joined));
    merges.emplace_back(left, right);
  }
  return BpeVocabulary::from_parts(std::move(tokens), merges);
}

BpeVocabulary small_vocabulary() {
  std::vector<std::string> tokens{std::string(tokenizers::kEndOfText)};
  for (const std::uint8_t byte : tokenizers::alphabet_bytes()) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  constexpr std::string_view kLetters = "abcd";
  for (const char first : kLetters) {
    for (const char second : kLetters) {
      tokens.push_back({first, second});
      for (const char third : kLetters) tokens.push_back({first, second, third});
    }
  }
  return BpeVocabulary::from_parts(std::move(tokens), {});
}

void check(BpeVocabulary vocabulary, std::string_view text) {
  // Writing and reading back costs seven times as much as all else: every eighth input is enough.
  // Most inputs have no text, so that is no sign to choose them by.
  if (text.size() % 8 == 1) {
    const auto again =
        BpeVocabulary::parse(vocabulary.vocab_json(), "v", vocabulary.merges_txt(), "m");
    require(again.identity_hash() == vocabulary.identity_hash());
  }
  const tokenizers::BpeTokenizer tokenizer(std::move(vocabulary), 8);
  for (const auto special :
       {tokenizers::SpecialTokens::kAsText, tokenizers::SpecialTokens::kParse}) {
    std::vector<std::int32_t> ids;
    tokenizers::BpeWork work;
    tokenizer.encode_counted(text, ids, special, work);
    require(tokenizer.decode(ids) == text);
    require(work.queue_pushes <= 3 * text.size());
    require(ids == tokenizer.encode(text, special));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  std::string_view data(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const int mode = bytes[0] % 3;
  if (mode == 1) {
    BpeVocabulary vocabulary = vocabulary_of_merges(data);
    check(std::move(vocabulary), data);
    return 0;
  }
  try {
    if (mode == 2) {
      // Parsing a vocabulary costs more than all else: once is enough.
      static const BpeVocabulary kSmall = small_vocabulary();
      BpeVocabulary vocabulary = kSmall.with_merges(take_part(data), "m");
      check(std::move(vocabulary), data);
      return 0;
    }
    const std::string_view json = take_part(data);
    const std::string_view merges = take_part(data);
    check(BpeVocabulary::parse(json, "v", merges, "m"), data);
  } catch (const pentatron::Error& error) {
    require(error.kind() == pentatron::ErrorKind::kData);
  }
  return 0;
}
