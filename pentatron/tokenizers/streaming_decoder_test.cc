// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/streaming_decoder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/tokenizers/bpe_test_support.h"
#include "pentatron/tokenizers/bpe_tokenizer.h"
#include "pentatron/tokenizers/hugging_face_tokenizer.h"
#include "pentatron/tokenizers/null_tokenizer.h"

namespace pentatron::tokenizers {
namespace {

using nlohmann::json;
using testing::random_text;
using testing::small_vocabulary;
using Ids = std::vector<std::int32_t>;

// Every piece is valid UTF-8, and they join to what decode_utf8 gives for all.
void expect_streams(const Tokenizer& tokenizer, const Ids& ids) {
  StreamingDecoder decoder(tokenizer);
  std::string joined;
  for (const std::int32_t id : ids) {
    const std::string piece = decoder.add(id);
    ASSERT_EQ(replace_invalid_utf8(piece), piece);
    joined += piece;
    // Never more than is certain.
    ASSERT_TRUE(tokenizer.decode_utf8(ids).starts_with(joined)) << joined;
  }
  joined += decoder.finish();
  ASSERT_EQ(joined, tokenizer.decode_utf8(ids));
}

Ids random_ids(std::mt19937& rng, const Tokenizer& tokenizer, std::size_t count) {
  Ids ids(count);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng() % tokenizer.vocab_size());
  return ids;
}

// A Llama kind of tokenizer.json: spaces are \u2581, what has no token is bytes, and decoding
// joins, turns bytes into text and takes the first space.
// With `added_bytes` the tokens of bytes are special ones too, as trainers of the library leave
// them.
std::unique_ptr<StagedTokenizer> byte_fallback(bool added_bytes = false) {
  json vocab = {{"<unk>", 0}, {"</s>", 1}};
  int next = 2;
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = next++;
  for (const char* token : {"\u2581", "a", "b", "\u2581a", "\u00e9", "ab", "."}) {
    vocab[token] = next++;
  }
  const json merges = json::array({"\u2581 a", "a b"});
  const json steps =
      json::array({{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}},
                   {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}});
  json added = json::array();
  const auto add = [&](int id, const std::string& content) {
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  };
  add(1, "</s>");
  for (int byte = 0; added_bytes && byte < 256; ++byte) {
    add(2 + byte, fmt::format("<0x{:02X}>", byte));
  }
  const json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         json::array(
             {{{"type", "Prepend"}, {"prepend", "\u2581"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}})}}},
      {"pre_tokenizer", nullptr},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Sequence"}, {"decoders", steps}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", "<unk>"},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", merges}}}};
  const TempFolder folder;
  write_file_atomically(folder.path() / "tokenizer.json", tokenizer.dump());
  write_file_atomically(folder.path() / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  return load_hugging_face_tokenizer(folder.path(), {});
}

TEST(StreamingDecoder, BytesWaitForTheirCharacter) {
  const BpeTokenizer tokenizer(small_vocabulary());
  StreamingDecoder decoder(tokenizer);
  const auto byte = [&](int b) {
    return tokenizer.vocabulary().byte_id(static_cast<std::uint8_t>(b));
  };
  EXPECT_EQ(decoder.add(byte(0xF0)), "");
  EXPECT_EQ(decoder.add(byte(0x9F)), "");
  EXPECT_EQ(decoder.add(byte(0x99)), "");
  EXPECT_EQ(decoder.add(byte(0x82)), "\U0001F642");
  EXPECT_EQ(decoder.add(byte(0xE4)), "");
  EXPECT_EQ(decoder.add(byte('a')), "\uFFFDa");  // it was none
  EXPECT_EQ(decoder.add(byte(0x80)), "\uFFFD");
  EXPECT_EQ(decoder.add(byte(0xC3)), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.add(byte('b')), "b");  // as new
}

TEST(StreamingDecoder, ByteLevelOverHostileBytes) {
  std::mt19937 rng(1);
  const BpeTokenizer tokenizer(small_vocabulary());
  for (int trial = 0; trial < 300; ++trial) {
    expect_streams(tokenizer, tokenizer.encode(random_text(rng, 20, trial % 2 == 0)));
    expect_streams(tokenizer, random_ids(rng, tokenizer, 30));
    // Bytes of characters, cut, in disorder, too many.
    Ids bytes(40);
    constexpr std::uint8_t kBytes[] = {0x80, 0xBF, 0xC0, 0xC3, 0xE0, 0xE2, 0x82, 0xAC,
                                       0xED, 0xA0, 0xF0, 0x9F, 0x90, 0xF4, 0xF5, 'a'};
    for (auto& id : bytes) id = tokenizer.vocabulary().byte_id(kBytes[rng() % 16]);
    expect_streams(tokenizer, bytes);
  }
}

TEST(StreamingDecoder, DecodersThatLookAround) {
  for (const bool added_bytes : {false, true}) {
    std::mt19937 rng(2);
    const auto tokenizer = byte_fallback(added_bytes);
    EXPECT_FALSE(tokenizer->decodes_apart());
    EXPECT_EQ(tokenizer->decode_utf8(tokenizer->encode("ab a\u20ac.")), "ab a\u20ac.");
    for (int trial = 0; trial < 300; ++trial) {
      expect_streams(*tokenizer, tokenizer->encode(random_text(rng, 20, true)));
      // Tokens that begin with a space, runs of bytes that are no text, special tokens.
      Ids ids = random_ids(rng, *tokenizer, 25);
      for (auto& id : ids) {
        if (rng() % 2 == 0) id = static_cast<std::int32_t>(258 + rng() % 7);
      }
      expect_streams(*tokenizer, ids);
    }
    const NullTokenizer null(100);
    expect_streams(null, {3, 99, 0, 7});
  }
}

// A span's bytes are the token's, and the spans are the text.
TEST(Spans, ByteLevelTokensAreTheirBytes) {
  std::mt19937 rng(3);
  const BpeTokenizer tokenizer(small_vocabulary());
  for (int trial = 0; trial < 300; ++trial) {
    const std::string text = random_text(rng, 20, false);
    const auto special = trial % 2 == 0 ? SpecialTokens::kAsText : SpecialTokens::kParse;
    const Ids ids = tokenizer.encode(text, special);
    const auto spans = tokenizer.spans(text, ids);
    ASSERT_EQ(spans.size(), ids.size());
    std::size_t at = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(spans[i].begin, at);
      ASSERT_EQ(text.substr(at, spans[i].end - at), tokenizer.decode({&ids[i], 1}));
      at = spans[i].end;
    }
    ASSERT_EQ(at, text.size());
  }
  EXPECT_TRUE(tokenizer.spans("", {}).empty());
  const Ids ids = tokenizer.encode("the fox");
  EXPECT_THROW((void)tokenizer.spans("the ox", ids), Error);
  EXPECT_THROW((void)tokenizer.spans("the fox jumps", ids), Error);
}

TEST(Spans, NumbersAndTokenizersOfOtherTexts) {
  const NullTokenizer null(100);
  EXPECT_EQ(null.spans(" 7\t12 ", null.encode(" 7\t12 ")),
            (std::vector<TokenSpan>{{1, 2}, {3, 5}}));
  EXPECT_THROW((void)null.spans("7", Ids{7, 8}), Error);
  const auto normalizing = byte_fallback();
  EXPECT_THROW((void)normalizing->spans("ab", normalizing->encode("ba")), Error);
  EXPECT_THROW((void)normalizing->spans("", normalizing->encode("a")), Error);
}

TEST(TokenIds, OfTextAndSpecialTokens) {
  const auto tokenizer = byte_fallback();
  EXPECT_EQ(tokenizer->token_id("</s>"), 1);
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_FALSE(tokenizer->is_special(2));
  EXPECT_EQ(tokenizer->token_id("<0x00>"), 2);
  EXPECT_TRUE(tokenizer->is_open(2));
  EXPECT_FALSE(tokenizer->token_id("none"));
  const BpeTokenizer bpe(small_vocabulary());
  EXPECT_EQ(bpe.token_id("<|endoftext|>"), bpe.eod());
  EXPECT_TRUE(bpe.is_special(bpe.eod()));
  EXPECT_EQ(bpe.token_id("a"), bpe.vocabulary().byte_id('a'));
  EXPECT_EQ(NullTokenizer(64).token_id("63"), 63);
  EXPECT_FALSE(NullTokenizer(64).token_id("64"));
}

}  // namespace
}  // namespace pentatron::tokenizers
