// SPDX-License-Identifier: Apache-2.0
// Runs of one character and broken bytes through every kind of tokenizer: time grows with the text,
// and byte-level kinds give any bytes back. (Where a kind counts its work, the tests beside it
// bound the counts: BpeTokenizer.HostileRunsCostLinearWork, WordScanner.*, SplitPattern.*.)
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/bert_tokenizer.h"
#include "pentatron/tokenizers/bpe_test_support.h"
#include "pentatron/tokenizers/bpe_tokenizer.h"
#include "pentatron/tokenizers/hugging_face_tokenizer.h"
#include "pentatron/tokenizers/sentence_piece_test_support.h"
#include "pentatron/tokenizers/streaming_decoder.h"
#include "pentatron/tokenizers/tiktoken_tokenizer.h"
#include "pentatron/tokenizers/word_rules.h"

namespace pentatron::tokenizers {
namespace {

using nlohmann::json;
using testing::repeat;
using Ids = std::vector<std::int32_t>;

struct Kind {
  std::string name;
  std::unique_ptr<Tokenizer> tokenizer;
  bool byte_level = false;
};

std::unique_ptr<Tokenizer> from_json(const json& tokenizer) {
  return std::make_unique<StagedTokenizer>(parse_tokenizer_json(tokenizer.dump(), "t"),
                                           SpecialTokenIds{}, TokenizerDescription{}, false);
}

json byte_vocabulary() {
  json vocab = {{"<unk>", 0}};
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = byte + 1;
  int next = 257;
  for (const char* token : {"\u2581", "a", "\u2581a", "aa", "1", "\u00e9", "e"})
    vocab[token] = next++;
  return vocab;
}

// Llama 2's kind.
json character_bpe() {
  const json stages =
      json::array({{{"type", "Prepend"}, {"prepend", "\u2581"}},
                   {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}});
  const json steps =
      json::array({{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}},
                   {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}});
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", stages}}},
          {"decoder", {{"type", "Sequence"}, {"decoders", steps}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", byte_vocabulary()},
            {"merges", json::array({"\u2581 a", "a a"})}}}};
}

// T5's kind.
json unigram() {
  json vocab = json::array();
  const json tokens = byte_vocabulary();
  vocab.get_ref<json::array_t&>().resize(tokens.size());
  for (const auto& [token, id] : tokens.items()) vocab[id.get<std::size_t>()] = {token, -2.0};
  const json stages =
      json::array({{{"type", "Nmt"}},
                   {{"type", "NFKC"}},
                   {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}}});
  return {
      {"normalizer", {{"type", "Sequence"}, {"normalizers", stages}}},
      {"pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}}},
      {"decoder", {{"type", "Metaspace"}, {"replacement", "\u2581"}}},
      {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}, {"byte_fallback", true}}}};
}

std::unique_ptr<Tokenizer> bert() {
  const TempFolder folder;
  write_file_atomically(folder.path() / "vocab.txt",
                        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##a\n1\n!\n##1\n");
  return load_bert_tokenizer(folder.path() / "vocab.txt", true);
}

std::unique_ptr<Tokenizer> tiktoken(TiktokenPattern pattern) {
  json list = json::array();
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    list.push_back({{"rank", byte},
                    {"token_bytes", testing::base64_of(std::string_view(&c, 1))},
                    {"token_str", ""}});
  }
  for (const char* token : {"aa", "  ", "aaaa", "11", "the"}) {
    list.push_back(
        {{"rank", list.size()}, {"token_bytes", testing::base64_of(token)}, {"token_str", token}});
  }
  return parse_tiktoken_tokenizer(list.dump(), "t",
                                  {.pattern = pattern,
                                   .vocab_size = 10 + static_cast<std::int64_t>(list.size()),
                                   .num_special_tokens = 10});
}

// DeepSeek-V3's words: numbers, Chinese and Japanese, and the rest, one cut after the other.
constexpr std::array<std::string_view, 3> kDeepSeekPatterns = {
    R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"};

// A tokenizer.json whose words are cut by these patterns, one after the other; none: GPT-2's.
std::unique_ptr<Tokenizer> byte_level(std::span<const std::string_view> patterns) {
  json root = testing::small_tokenizer_json();
  if (patterns.empty()) return from_json(root);
  json stages = json::array();
  for (const std::string_view pattern : patterns) {
    stages.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}});
  }
  stages.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", stages}};
  return from_json(root);
}

std::vector<Kind> byte_level_kinds() {
  std::vector<Kind> kinds;
  kinds.push_back(
      {"GPT2BPETokenizer", std::make_unique<BpeTokenizer>(testing::small_vocabulary()), true});
  kinds.push_back({"TikTokenizer v1", tiktoken(TiktokenPattern::kV1), true});
  kinds.push_back({"TikTokenizer v2", tiktoken(TiktokenPattern::kV2), true});
  kinds.push_back({"tokenizer.json of GPT-2", byte_level({}), true});
  const auto add = [&](const char* name, WordRule rule) {
    const std::array pattern = {word_rule_pattern(rule)};
    kinds.push_back({name, byte_level(pattern), true});
  };
  add("tokenizer.json of Llama 3", WordRule::kLlama3);
  add("tokenizer.json of Qwen2 and 3", WordRule::kQwen2);
  add("tokenizer.json of gpt-oss", WordRule::kO200k);
  kinds.push_back({"tokenizer.json of DeepSeek-V3", byte_level(kDeepSeekPatterns), true});
  return kinds;
}

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds = byte_level_kinds();
  kinds.push_back({"BertWordPiece", bert()});
  kinds.push_back({"BPE of characters", from_json(character_bpe())});
  kinds.push_back({"Unigram", from_json(unigram())});
#if !defined(__SANITIZE_ADDRESS__)  // no SentencePiece there
  for (const char* kind : {"bpe", "unigram"}) {
    for (const bool bytes : {true, false}) {
      const std::string settings =
          fmt::format("model_type={}\nvocab_size={}\nbyte_fallback={}\nhard_vocab_limit=false\n",
                      kind, bytes ? 400 : 144, bytes);
      kinds.push_back(
          {fmt::format("SentencePiece {}{}", kind, bytes ? "" : " without bytes"),
           testing::tokenizer_of(testing::trained_model(testing::some_lines(), settings))});
    }
  }
#endif
  return kinds;
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Encoding, decoding, and one id after the other.
double seconds_of(const Kind& kind, const std::string& text) {
  const double start = processor_seconds();
  const Ids ids = kind.tokenizer->encode(text);
  const std::string decoded = kind.tokenizer->decode(ids);
  StreamingDecoder decoder(*kind.tokenizer);
  std::string streamed;
  for (const std::int32_t id : ids) streamed += decoder.add(id);
  streamed += decoder.finish();
  const double seconds = processor_seconds() - start;
  EXPECT_EQ(streamed, replace_invalid_utf8(decoded)) << kind.name;
  if (kind.byte_level) {
    EXPECT_EQ(decoded, text) << kind.name;
  }
  return seconds;
}

// Sixteen times the text: what is quadratic takes 256 times as long.
TEST(HostileRuns, TimeGrowsWithTheText) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's memory has a price of its own";
#endif
  constexpr std::size_t kShort = 4'000;
  constexpr double kMaxGrowth = 64;
  constexpr double kTooShortToTell = 0.02;
  for (const Kind& kind : all_kinds()) {
    for (const std::string piece : {"a", " ", "\n", "1", "!", "a ", "\u0301", "e\u0301", "\u4e2d",
                                    "\U0001F642", "'s", "\r\n", "\xFF", "\u2581", "\x01"}) {
      const double few = seconds_of(kind, repeat(piece, kShort / piece.size()));
      double many = seconds_of(kind, repeat(piece, 16 * kShort / piece.size()));
      // Another program may have taken the caches: the best of two.
      if (many > kMaxGrowth * few + kTooShortToTell) {
        many = std::min(many, seconds_of(kind, repeat(piece, 16 * kShort / piece.size())));
      }
      EXPECT_LE(many, kMaxGrowth * few + kTooShortToTell)
          << kind.name << " on " << json(piece).dump(-1, ' ', true, json::error_handler_t::replace);
    }
  }
}

// Spans that are the text, one behind the other.
void expect_spans_join(const Kind& kind, const std::string& text, const Ids& ids) {
  std::size_t at = 0;
  for (const auto& [begin, end] : kind.tokenizer->spans(text, ids)) {
    ASSERT_EQ(begin, at) << kind.name;
    at = end;
  }
  ASSERT_EQ(at, text.size()) << kind.name;
}

TEST(HostileRuns, ByteLevelKindsGiveAnyBytesBack) {
  std::mt19937 rng(20);
  for (const Kind& kind : byte_level_kinds()) {
    for (int trial = 0; trial < 2000; ++trial) {
      std::string text = testing::random_text(rng, 1 + rng() % 40, false);
      if (trial % 5 == 0) text.insert(rng() % (text.size() + 1), 1, '\0');
      ASSERT_EQ(kind.tokenizer->decode(kind.tokenizer->encode(text)), text) << kind.name;
      const Ids ids = kind.tokenizer->encode(text, SpecialTokens::kParse);
      ASSERT_EQ(kind.tokenizer->decode(ids), text) << kind.name;
      expect_spans_join(kind, text, ids);
    }
  }
}

}  // namespace
}  // namespace pentatron::tokenizers
