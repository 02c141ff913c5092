// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/bpe_test_support.h"

namespace pentatron::tokenizers {
namespace {

using testing::random_text;
using testing::repeat;
using testing::slow_merge;
using testing::small_vocabulary;
using testing::split;
using Ids = std::vector<std::int32_t>;

Ids slow_encode(const BpeVocabulary& vocabulary, std::string_view text) {
  Ids ids;
  for (const std::string& word : split(text)) {
    const Ids more = slow_merge(vocabulary, word);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

// 'a'..'d' joined in a known order: ab, cd, bc, abcd, aa.
BpeVocabulary letters() {
  std::vector<std::string> tokens{std::string(kEndOfText)};
  for (const std::uint8_t byte : alphabet_bytes()) tokens.emplace_back(1, static_cast<char>(byte));
  const auto id = [](char c) { return c - '!' + 1; };
  for (const char* token : {"ab", "cd", "bc", "abcd", "aa"}) tokens.emplace_back(token);
  return BpeVocabulary::from_parts(
      tokens,
      {{id('a'), id('b')}, {id('c'), id('d')}, {id('b'), id('c')}, {257, 258}, {id('a'), id('a')}});
}

TEST(BpeTokenizer, AppliesMergesByRankThenFromTheLeft) {
  const BpeTokenizer tokenizer(letters());
  const auto id = [](char c) { return static_cast<std::int32_t>(c - '!' + 1); };
  EXPECT_EQ(tokenizer.encode("abcd"), Ids{260});            // not a, bc, d
  EXPECT_EQ(tokenizer.encode("bcd"), (Ids{id('b'), 258}));  // cd before bc
  EXPECT_EQ(tokenizer.encode("aaab"), (Ids{261, 257}));
  EXPECT_EQ(tokenizer.encode("aaa"), (Ids{261, id('a')}));
  EXPECT_EQ(tokenizer.encode("ab'd"), (Ids{257, id('\''), id('d')}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  // The same words as one long word, which takes the queue.
  Ids long_ids = tokenizer.encode(repeat("abcd", 50));
  EXPECT_EQ(long_ids, Ids(50, 260));
  long_ids = tokenizer.encode(repeat("a", 101));
  Ids expected(50, 261);
  expected.push_back(id('a'));
  EXPECT_EQ(long_ids, expected);
}

TEST(BpeTokenizer, LongAndShortWordsFollowTheDefinition) {
  const BpeTokenizer tokenizer(small_vocabulary());
  std::mt19937 rng(11);
  for (int round = 0; round < 600; ++round) {
    std::string word;
    const std::size_t size = round % 3 == 0 ? 55 + rng() % 20 : 1 + rng() % 300;
    const std::string alphabet = round % 2 == 0 ? "aeht" : "theoranswq";
    for (std::size_t i = 0; i < size; ++i) word.push_back(alphabet[rng() % alphabet.size()]);
    ASSERT_EQ(tokenizer.encode(word), slow_merge(tokenizer.vocabulary(), word)) << word;
  }
}

TEST(BpeTokenizer, MergesOutOfOrderFollowTheDefinition) {
  // A product that ranks before its parts' merges, and chains that lead back to lower ranks.
  std::vector<std::string> tokens{std::string(kEndOfText)};
  for (const std::uint8_t byte : alphabet_bytes()) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* token : {"ab", "abab", "ba", "aab", "bab", "aba", "bb"})
    tokens.emplace_back(token);
  const auto id = [&](std::string_view token) {
    return static_cast<std::int32_t>(std::find(tokens.begin(), tokens.end(), token) -
                                     tokens.begin());
  };
  const BpeTokenizer tokenizer(BpeVocabulary::from_parts(tokens, {{id("ab"), id("ab")},
                                                                  {id("a"), id("ba")},
                                                                  {id("b"), id("ab")},
                                                                  {id("b"), id("a")},
                                                                  {id("a"), id("ab")},
                                                                  {id("ba"), id("b")},
                                                                  {id("a"), id("b")},
                                                                  {id("b"), id("b")}}));
  std::mt19937 rng(5);
  for (int round = 0; round < 1000; ++round) {
    std::string word;
    for (std::size_t i = 1 + rng() % 200; i > 0; --i) word.push_back("ab"[rng() % 2]);
    ASSERT_EQ(tokenizer.encode(word), slow_merge(tokenizer.vocabulary(), word)) << word;
  }
}

TEST(BpeTokenizer, TextAndBytesComeBack) {
  const BpeTokenizer tokenizer(small_vocabulary());
  std::mt19937 rng(1);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(rng, rng() % 40, round % 2 == 0);
    const Ids ids = tokenizer.encode(text);
    ASSERT_EQ(tokenizer.decode(ids), text);
    ASSERT_EQ(ids, slow_encode(tokenizer.vocabulary(), text));
  }
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) bytes.push_back(static_cast<char>(rng()));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
}

TEST(BpeTokenizer, InvalidBytesAreReplacedOnRequestOnly) {
  const BpeTokenizer tokenizer(small_vocabulary());
  const Ids ids = tokenizer.encode("a\xE4\xB8\xFFz");
  EXPECT_EQ(tokenizer.decode(ids), "a\xE4\xB8\xFFz");
  EXPECT_EQ(tokenizer.decode_utf8(ids), "a\uFFFD\uFFFDz");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80 \xF0\x9F\x99\x82"), "\uFFFD\uFFFD\uFFFD \U0001F642");
}

TEST(BpeTokenizer, EndOfDocumentInTextIsTextUnlessAsked) {
  const BpeTokenizer tokenizer(small_vocabulary());
  const std::string text = "the<|endoftext|>the<|endoftext|>";
  const Ids plain = tokenizer.encode(text);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), tokenizer.eod()), 0);
  EXPECT_EQ(tokenizer.decode(plain), text);
  Ids expected = tokenizer.encode("the");
  const Ids the = expected;
  expected.push_back(tokenizer.eod());
  expected.insert(expected.end(), the.begin(), the.end());
  expected.push_back(tokenizer.eod());
  EXPECT_EQ(tokenizer.encode(text, SpecialTokens::kParse), expected);
  EXPECT_EQ(tokenizer.decode(expected), text);
}

TEST(BpeTokenizer, AppendsAndRefusesUnknownIds) {
  const BpeTokenizer tokenizer(small_vocabulary());
  Ids ids = tokenizer.encode("the");
  tokenizer.encode_append(" dog", ids);
  EXPECT_EQ(ids, tokenizer.encode("the dog"));
  EXPECT_THROW((void)tokenizer.decode(Ids{-1}), Error);
  EXPECT_THROW((void)tokenizer.decode(Ids{static_cast<std::int32_t>(tokenizer.vocab_size())}),
               Error);
  EXPECT_EQ(tokenizer.eod(), 0);
  EXPECT_EQ(tokenizer.bos(), tokenizer.eos());
  EXPECT_EQ(tokenizer.pad(), -1);
}

TEST(BpeTokenizer, RemembersWordsWithoutChangingThem) {
  const BpeTokenizer tokenizer(small_vocabulary());
  // Nine words: six are bytes, known as tokens, three are new: two short ones, and one that is
  // longer than a slot.
  const std::string text = " thezq q@w#e$r thezqthezqthezq";
  BpeWork work;
  Ids first;
  tokenizer.encode_counted(text + text, first, SpecialTokens::kAsText, work);
  EXPECT_EQ(work.words, 18U);
  EXPECT_EQ(work.cache_hits, 15U);
  Ids second;
  tokenizer.encode_counted(text + text, second, SpecialTokens::kAsText, work);
  EXPECT_EQ(first, second);
  EXPECT_EQ(work.cache_hits, 33U);
}

TEST(BpeTokenizer, WordsThatShareASlotStayApart) {
  const BpeTokenizer tokenizer(small_vocabulary(), 1);
  std::mt19937 rng(4);
  for (int round = 0; round < 200; ++round) {
    const std::string text = random_text(rng, 20, true) + " the the dog dog the";
    ASSERT_EQ(tokenizer.encode(text), slow_encode(tokenizer.vocabulary(), text));
  }
}

TEST(BpeTokenizer, ThreadsShareOneTokenizer) {
  const BpeTokenizer tokenizer(small_vocabulary(), 64);  // few, so that words replace each other
  std::mt19937 rng(2);
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  for (int i = 0; i < 200; ++i) {
    texts.push_back(random_text(rng, 50, true));
    expected.push_back(slow_encode(tokenizer.vocabulary(), texts.back()));
  }
  std::array<int, 4> wrong{};
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        for (std::size_t i = 0; i < texts.size(); ++i) {
          if (tokenizer.encode(texts[i]) != expected[i]) ++count;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::array<int, 4>{}));
}

TEST(BpeTokenizer, HostileRunsCostLinearWork) {
  const BpeTokenizer tokenizer(small_vocabulary());
  for (const std::string_view piece :
       {"a", " ", "1", "\u0301", "^", "ab", "the", "a1", "\xFF", "<|endoftext"}) {
    const std::string text = repeat(piece, 1'000'000 / piece.size());
    BpeWork work;
    Ids ids;
    tokenizer.encode_counted(text, ids, SpecialTokens::kParse, work);
    EXPECT_LE(work.queue_pushes, 3 * text.size()) << piece;
    EXPECT_EQ(work.queue_pops, work.queue_pushes) << piece;
    EXPECT_LE(work.pair_lookups, 6 * text.size()) << piece;
    EXPECT_LE(work.scan_steps, WordCache::kLongBytes * text.size()) << piece;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

// 100,000 times one letter: work grows with the length, not faster.
TEST(Cases, Tiktoken_195) {
  const BpeTokenizer tokenizer(small_vocabulary());
  const auto steps = [&](std::size_t letters) {
    BpeWork work;
    Ids ids;
    tokenizer.encode_counted(std::string(letters, 'a'), ids, SpecialTokens::kAsText, work);
    EXPECT_EQ(tokenizer.decode(ids), std::string(letters, 'a'));
    return work.queue_pushes + work.pair_lookups + work.scan_steps;
  };
  EXPECT_LE(static_cast<double>(steps(100'000)), 2.1 * static_cast<double>(steps(50'000)));
}

TEST(BpeTokenizer, EncodesTenMegabytesOfOneCharacter) {
  const BpeTokenizer tokenizer(small_vocabulary());
  const std::string text(10'000'000, 'a');
  BpeWork work;
  Ids ids;
  tokenizer.encode_counted(text, ids, SpecialTokens::kAsText, work);
  EXPECT_LE(work.queue_pushes, 3 * text.size());
  EXPECT_LT(ids.size(), text.size() / 4);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

}  // namespace
}  // namespace pentatron::tokenizers
