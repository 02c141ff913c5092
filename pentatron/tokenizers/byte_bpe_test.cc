// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/byte_bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "pentatron/tokenizers/bpe_model.h"
#include "pentatron/tokenizers/bpe_test_support.h"
#include "pentatron/tokenizers/word_splitter.h"

namespace pentatron::tokenizers {
namespace {

using Ids = std::vector<std::int32_t>;

// All bytes in a random order, then random tokens over a few letters: many are spelled in several
// ways, some out of the order of their parts, some by no merges at all.
std::vector<std::string> random_tokens(std::mt19937& rng, std::size_t count) {
  std::vector<std::string> tokens;
  std::map<std::string, int> known;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::shuffle(tokens.begin(), tokens.end(), rng);
  while (tokens.size() < 256 + count) {
    std::string token;
    const std::size_t size = 2 + rng() % (rng() % 8 == 0 ? 90 : 4);
    for (std::size_t i = 0; i < size; ++i) token += "abc "[rng() % 4];
    if (known.emplace(token, 0).second) tokens.push_back(token);
  }
  return tokens;
}

// By the definition: a word that is a token; else the two neighbours whose joined bytes are the
// token of the lowest id, the leftmost first, over and over.
Ids by_ranks(const std::map<std::string, std::int32_t>& ids, const std::string& word) {
  if (const auto whole = ids.find(word); whole != ids.end()) return {whole->second};
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    std::size_t best = parts.size();
    std::int32_t lowest = INT32_MAX;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ids.find(parts[i] + parts[i + 1]);
      if (found != ids.end() && found->second < lowest) {
        lowest = found->second;
        best = i;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids result;
  for (const std::string& part : parts) result.push_back(ids.at(part));
  return result;
}

std::string random_word(std::mt19937& rng) {
  std::string word;
  const std::size_t size = 1 + rng() % (rng() % 10 == 0 ? 300 : 20);
  for (std::size_t i = 0; i < size; ++i) word += "abc "[rng() % 4];
  return word;
}

TEST(ByteBpe, EqualsTheDefinitionForHostileVocabularies) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 rng(seed);
    const std::vector<std::string> tokens = random_tokens(rng, 40 + 10 * seed);
    std::map<std::string, std::int32_t> ids;
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      ids.emplace(tokens[id], static_cast<std::int32_t>(id));
    }
    const auto model = BpeModel::from_ranks(TokenList(tokens, "test"), 0);
    for (int round = 0; round < 300; ++round) {
      const std::string word = random_word(rng);
      const Ids expected = by_ranks(ids, word);
      for (int time = 0; time < 2; ++time) {  // anew, and from the cache
        Ids found;
        model->encode(word, found);
        ASSERT_EQ(found, expected) << "seed " << seed << ", word \"" << word << "\"";
      }
    }
  }
}

// Whole texts, in blocks of words, give the ids of their words.
TEST(ByteBpe, TextsGiveTheIdsOfTheirWords) {
  std::mt19937 rng(5);
  const std::vector<std::string> tokens = random_tokens(rng, 200);
  const auto model = BpeModel::from_ranks(TokenList(tokens, "test"), 0);
  for (int round = 0; round < 200; ++round) {
    const std::string text = testing::random_text(rng, rng() % 400, false) + random_word(rng);
    Ids expected;
    for (const std::string& word : testing::split(text)) model->encode(word, expected);
    Ids found;
    BpeWork work;
    model->byte_bpe()->encode(WordRule::kGpt2, text, found, work);
    ASSERT_EQ(found, expected);
  }
}

// Which pre-tokenisers of a tokenizer.json take the fast path.
TEST(ByteBpe, PreTokenisersThatAreARule) {
  using nlohmann::json;
  const auto rule_of = [](const json& object) {
    return make_word_splitter(object, "test")->rule();
  };
  const auto byte_level = [](bool prefix, bool regex) {
    return json{{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"use_regex", regex}};
  };
  const auto split = [](std::string_view pattern, const char* behavior) {
    return json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}};
  };
  const auto sequence = [](const json& first, const json& second) {
    return json{{"type", "Sequence"}, {"pretokenizers", {first, second}}};
  };
  const json llama3 = split(word_rule_pattern(WordRule::kLlama3), "Isolated");
  EXPECT_EQ(rule_of(byte_level(false, true)), WordRule::kGpt2);
  EXPECT_EQ(rule_of(byte_level(true, true)), std::nullopt);
  EXPECT_EQ(rule_of(byte_level(false, false)), std::nullopt);
  EXPECT_EQ(rule_of(llama3), WordRule::kLlama3);
  EXPECT_EQ(rule_of(sequence(llama3, byte_level(false, false))), WordRule::kLlama3);
  EXPECT_EQ(rule_of(sequence(llama3, byte_level(false, true))), std::nullopt);
  EXPECT_EQ(rule_of(split(word_rule_pattern(WordRule::kLlama3), "Removed")), std::nullopt);
  EXPECT_EQ(rule_of(split(R"(\p{L}+)", "Isolated")), std::nullopt);
  EXPECT_EQ(make_pattern_splitter(word_rule_pattern(WordRule::kMegatronV2), true)->rule(),
            WordRule::kMegatronV2);
}

// More tokens than PairTable holds: the same ids by the other way.
TEST(ByteBpe, LargestVocabulariesTakeTheOtherWay) {
  std::mt19937 rng(6);
  std::vector<std::string> tokens = random_tokens(rng, 100);
  std::map<std::string, std::int32_t> ids;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    ids.emplace(tokens[id], static_cast<std::int32_t>(id));
  }
  // Four bytes that no other tokens spell.
  for (std::uint32_t i = 0; tokens.size() <= PairTable::kMaxTokens; ++i) {
    tokens.push_back({'#', static_cast<char>(i & 127), static_cast<char>((i >> 7) & 127),
                      static_cast<char>(128 + (i >> 14))});
  }
  const auto model = BpeModel::from_ranks(TokenList(tokens, "test"), 0);
  for (int round = 0; round < 300; ++round) {
    const std::string word = random_word(rng);
    Ids found;
    model->encode(word, found);
    ASSERT_EQ(found, by_ranks(ids, word)) << word;
  }
}

// Words that collide in a small cache, short ones and long ones, replace each other and stay right.
TEST(WordCache, KeepsWordsApart) {
  WordCache cache(64);
  std::mt19937 rng(7);
  std::vector<std::int32_t> room(WordCache::kLongBytes + WordCache::kPadding);
  std::size_t known = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::string word = std::to_string(rng() % 3000) + std::string(rng() % 2 * 20, 'x');
    const std::size_t num_ids = std::min<std::size_t>(1 + word[0] % 7, word.size());
    const Ids ids(num_ids, std::stoi(word));
    const bool is_short = word.size() <= WordCache::kShortBytes;
    const WordCache::Key key =
        is_short ? WordCache::key_of(word.data(), word.size(), word.size()) : WordCache::Key{};
    const std::uint64_t hash = is_short ? WordCache::hash_of(key) : WordCache::hash_of(word);
    const std::size_t count = is_short ? cache.recall_short(key, hash, room.data())
                                       : cache.recall_long(word, hash, room.data());
    if (count > 0) {
      ++known;
      ASSERT_EQ(Ids(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(count)), ids);
    } else if (is_short) {
      cache.remember_short(key, hash, ids);
    } else {
      cache.remember_long(word, hash, ids);
    }
  }
  EXPECT_GT(known, 100U);
}

TEST(WordCache, KeysHoldBytesAndSize) {
  const std::string text("ab\0cdefghijklmnop", 17);
  for (std::size_t size = 1; size <= WordCache::kShortBytes; ++size) {
    const WordCache::Key exact = WordCache::key_of(text.data(), size, size);
    EXPECT_EQ(WordCache::key_of(text.data(), size, text.size()), exact);
    EXPECT_NE(WordCache::key_of(text.data(), size - 1, text.size()), exact);
  }
}

}  // namespace
}  // namespace pentatron::tokenizers
