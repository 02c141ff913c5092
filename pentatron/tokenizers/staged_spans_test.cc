// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/bpe_test_support.h"
#include "pentatron/tokenizers/hugging_face_tokenizer.h"

namespace pentatron::tokenizers {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

// A BPE of "a", "b" and "ab"; every other character is unknown.
StagedTokenizer tokenizer_with(const json& normalizer, const json& pre_tokenizer) {
  const json root = {{"normalizer", normalizer},
                     {"pre_tokenizer", pre_tokenizer},
                     {"model",
                      {{"type", "BPE"},
                       {"unk_token", "?"},
                       {"vocab", {{"?", 0}, {"a", 1}, {"b", 2}, {"ab", 3}}},
                       {"merges", {"a b"}}}}};
  return {parse_tokenizer_json(root.dump(), "t"), {}, {}, false};
}

// Normaliser, pre-tokeniser, text, ids and places in bytes, as tokenizers 0.23.3 gives them.
constexpr const char* kCases = R"([
[{"type":"NFD"},null,"a\u00e9\u1e69b",[1,0,0,0,0,0,2],[[0,1],[1,3],[1,3],[3,6],[3,6],[3,6],
[6,7]]],
[{"type":"NFD"},null,"a\u0323\u0307\u0307\u0323\u1e9b\u0323",[1,0,0,0,0,0,0,0],[[0,1],[1,3],
[3,5],[5,7],[7,9],[9,12],[12,14],[12,14]]],
[{"type":"NFC"},null,"e\u0301ab\u1e9b\u0323q\u0307\u0323\uac00\u1100\u1161\u11a8",[0,3,0,0,
0,0,0,0,0],[[0,1],[3,5],[5,8],[8,10],[10,11],[11,13],[13,15],[15,18],[18,21]]],
[{"type":"NFKC"},null,"\ufb01ab\uff76\uff9e\u2460\u00bd",[0,0,3,0,0,0,0,0],[[0,3],[0,3],[3,
5],[5,8],[11,14],[14,16],[14,16],[14,16]]],
[{"type":"NFKD"},null,"\ufb01ab\ufdfa\u00c5",[0,0,3,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,
0],[[0,3],[0,3],[3,5],[5,8],[5,8],[5,8],[5,8],[5,8],[5,8],[5,8],[5,8],[5,8],[5,8],[5,8],[5,
8],[5,8],[5,8],[5,8],[5,8],[5,8],[5,8],[8,10],[8,10]]],
[{"type":"Lowercase"},null,"A\u0130B",[1,0,0,2],[[0,1],[1,3],[1,3],[3,4]]],
[{"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"},
{"type":"Lowercase"}]},null,"\u0301A\u0300\u0301\u00c9ab",[1,0,3],[[2,3],[7,9],[9,11]]],
[{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,
"strip_accents":null,"lowercase":true},null," a\u4e2d\u00e9\u0000\tB\u0301\u4e00",[0,1,0,0,
0,0,0,2,0,0,0],[[0,1],[1,2],[2,5],[2,5],[2,5],[5,7],[8,9],[9,10],[12,15],[12,15],[12,15]]],
[{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},{"type":"Replace",
"pattern":{"String":" "},"content":"\u2581"}]},null,"a b\u20ac ab",[0,1,0,2,0,0,3],[[0,1],
[0,1],[1,2],[2,3],[3,6],[6,7],[7,9]]],
[{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Replace",
"pattern":{"Regex":" {2,}"},"content":" "},{"type":"Strip","strip_left":true,
"strip_right":true}]},{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always",
"split":true},"  a   b\u00a0\u00a0ab ",[0,1,0,2,0,3],[[2,3],[2,3],[5,6],[6,7],[9,11],[11,
13]]],
[{"type":"Replace","pattern":{"String":"ab"},"content":"x"},{"type":"Metaspace",
"replacement":"\u2581","prepend_scheme":"first","split":false}," abab a",[0,0,0,0,1],[[0,1],
[2,3],[4,5],[5,6],[6,7]]],
[{"type":"Replace","pattern":{"String":"a"},"content":"xyz"},null,"abaa",[0,0,0,2,0,0,0,0,0,
0],[[0,1],[0,1],[0,1],[1,2],[2,3],[2,3],[2,3],[3,4],[3,4],[3,4]]],
[{"type":"Nmt"},null,"\u200ba\u0001b\u0085",[0,3,0],[[0,3],[3,6],[6,8]]],
[null,{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always","split":true},
"a b",[0,1,0,2],[[0,1],[0,1],[1,2],[2,3]]],
[null,{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Punctuation",
"behavior":"Isolated"}]},"  a,b \u00e9!",[1,0,2,0,0],[[2,3],[3,4],[4,5],[6,8],[8,9]]]
])";

TEST(Spans, ThroughNormalizersAsTheLibraryTellsThem) {
  for (const json& row : json::parse(kCases)) {
    const StagedTokenizer tokenizer = tokenizer_with(row[0], row[1]);
    const auto text = row[2].get<std::string>();
    const Ids ids = tokenizer.encode(text);
    ASSERT_EQ(ids, row[3].get<Ids>()) << row.dump();
    std::vector<TokenSpan> expected;
    for (const json& span : row[4]) expected.push_back({.begin = span[0], .end = span[1]});
    EXPECT_EQ(tokenizer.spans(text, ids), expected) << row.dump();
  }
}

// The two ways through a normaliser give one text: ids are those of encode().
TEST(Spans, AreOfTheSameIdsForAnyBytes) {
  std::mt19937 rng(5);
  for (const json& row : json::parse(kCases)) {
    const StagedTokenizer tokenizer = tokenizer_with(row[0], row[1]);
    for (int trial = 0; trial < 400; ++trial) {
      const std::string text = testing::random_text(rng, 24, trial % 2 == 0);
      const Ids ids = tokenizer.encode(text);
      const std::vector<TokenSpan> spans = tokenizer.spans(text, ids);
      ASSERT_EQ(spans.size(), ids.size());
      for (const TokenSpan& span : spans) ASSERT_LE(span.end, text.size());
    }
  }
}

// Characters that became several tokens, and unknown ones in a row.
TEST(Spans, OfModelsThatCutCharacters) {
  json root = {{"normalizer", {{"type", "Lowercase"}}},
               {"model",
                {{"type", "Unigram"},
                 {"unk_id", 0},
                 {"byte_fallback", false},
                 {"vocab", json::array({json::array({"?", 0.0}), json::array({"a", -1.0}),
                                        json::array({"bc", -1.0})})}}}};
  const auto spans_of = [&](const std::string& text) {
    const StagedTokenizer tokenizer(parse_tokenizer_json(root.dump(), "t"), {}, {}, false);
    return tokenizer.spans(text, tokenizer.encode(text));
  };
  using Spans = std::vector<TokenSpan>;
  EXPECT_EQ(spans_of("A\u20acxBC"), (Spans{{0, 1}, {1, 5}, {5, 7}}));
  for (int byte = 0; byte < 256; ++byte) {
    root["model"]["vocab"].push_back(json::array({fmt::format("<0x{:02X}>", byte), -20.0}));
  }
  root["model"]["byte_fallback"] = true;
  EXPECT_EQ(spans_of("A\u20acBC"), (Spans{{0, 1}, {1, 4}, {1, 4}, {1, 4}, {4, 6}}));
  root = {
      {"normalizer", {{"type", "Lowercase"}}},
      {"added_tokens",
       {{{"id", 4}, {"content", "<S>"}, {"special", true}, {"lstrip", true}, {"rstrip", true}}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<S>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
          {{"SpecialToken", {{"id", "<S>"}, {"type_id", 0}}}}}},
        {"special_tokens", {{"<S>", {{"id", "<S>"}, {"ids", {4}}}}}}}},
      {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "?"},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 100},
        {"vocab", {{"?", 0}, {"a", 1}, {"##bc", 2}, {"##d", 3}}}}}};
  // The template's tokens are empty, at both ends; one in the text has the spaces that it takes.
  const StagedTokenizer pieces(parse_tokenizer_json(root.dump(), "t"), {}, {}, true);
  const std::string text = "ABCD <S>  xyz a";
  const Ids ids = pieces.encode(text, SpecialTokens::kParse);
  ASSERT_EQ(ids, (Ids{4, 1, 2, 3, 4, 0, 1, 4}));
  EXPECT_EQ(pieces.spans(text, ids),
            (Spans{{0, 0}, {0, 1}, {1, 3}, {3, 4}, {4, 10}, {10, 13}, {14, 15}, {15, 15}}));
}

}  // namespace
}  // namespace pentatron::tokenizers
