// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/sentence_piece_tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "pentatron/base/error.h"
#include "pentatron/base/test_support.h"
#include "pentatron/tokenizers/bpe_test_support.h"
#include "pentatron/tokenizers/sentence_piece_test_support.h"
#include "pentatron/tokenizers/streaming_decoder.h"

// Ids, texts and spans against the library of today: tools/reference/tokenizer_families.py.
namespace pentatron::tokenizers {
namespace {

using testing::random_text;
using Ids = std::vector<std::int32_t>;

#if !defined(__SANITIZE_ADDRESS__)  // no SentencePiece there

// Models of the kinds that published ones have: Llama's (BPE, bytes, text as it is), T5's (unigram,
// NFKC, unknown characters are one unknown piece), and one that adds no space in front.
std::unique_ptr<SentencePieceTokenizer> model_of(const std::string& kind) {
  std::string settings = "pad_id=3\n";
  if (kind == "llama") {
    settings +=
        "model_type=bpe\nvocab_size=500\nbyte_fallback=true\nsplit_digits=true\n"
        "normalization_rule_name=identity\nremove_extra_whitespaces=false\n";
  } else if (kind == "t5") {
    settings += "model_type=unigram\nvocab_size=200\nhard_vocab_limit=false\n";
  } else {
    settings +=
        "model_type=unigram\nvocab_size=400\nhard_vocab_limit=false\nbyte_fallback=true\nadd_dummy_"
        "prefix=false\n"
        "remove_extra_whitespaces=false\n";
  }
  return testing::tokenizer_of(testing::trained_model(testing::some_lines(), settings));
}

const std::vector<std::string> kKinds = {"llama", "t5", "bare"};

std::string random_line(std::mt19937& rng) {
  std::string text;
  for (unsigned i = 0; i < 1 + rng() % 12; ++i) {
    text += rng() % 2 == 0 ? std::string(1, static_cast<char>('a' + rng() % 9))
                           : random_text(rng, 1, rng() % 2 == 0);
  }
  return text;
}

// In order, inside the text, and nothing lies between two of them but what the normaliser drops.
void expect_in_order(const std::string& text, const std::vector<TokenSpan>& spans) {
  std::size_t at = 0;
  for (const TokenSpan& span : spans) {
    ASSERT_GE(span.begin, at) << text;
    ASSERT_LE(span.begin, span.end) << text;
    ASSERT_LE(span.end, text.size()) << text;
    at = span.end;
  }
}

TEST(SentencePieceSpans, StandInOrderForAnyText) {
  for (const std::string& kind : kKinds) {
    const auto tokenizer = model_of(kind);
    std::mt19937 rng(8);
    for (int trial = 0; trial < 2000; ++trial) {
      const std::string text = random_line(rng);
      const Ids ids = tokenizer->encode(text);
      const std::vector<TokenSpan> spans = tokenizer->spans(text, ids);
      ASSERT_EQ(spans.size(), ids.size());
      expect_in_order(text, spans);
    }
    EXPECT_TRUE(tokenizer->spans("", {}).empty());
    expect_error(ErrorKind::kData, "another text",
                 [&] { (void)tokenizer->spans("abc", tokenizer->encode("hgf")); });
  }
}

// Where nothing is normalised, a piece is its span with the spaces written as U+2581; the first one
// has a space that the model added.
TEST(SentencePieceSpans, ArePiecesOfTheText) {
  const auto tokenizer = model_of("llama");
  std::mt19937 rng(9);
  for (int trial = 0; trial < 1000; ++trial) {
    const std::string text = random_line(rng);
    if (replace_invalid_utf8(text) != text || text.find('\0') != std::string::npos) continue;
    const Ids ids = tokenizer->encode(text);
    const std::vector<TokenSpan> spans = tokenizer->spans(text, ids);
    std::string covered;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::string part = text.substr(spans[i].begin, spans[i].end - spans[i].begin);
      covered += part;
      if (tokenizer->is_open(ids[i]))
        continue;  // a byte: the last one of a character stands for it
      ASSERT_TRUE(tokenizer->decode({&ids[i], 1}) == part ||
                  " " + tokenizer->decode({&ids[i], 1}) == part)
          << text << ": token " << i;
    }
    ASSERT_EQ(covered, text);
  }
}

// The library's own pieces and places.
struct LibraryPieces {
  Ids ids;
  std::vector<std::pair<std::size_t, std::size_t>> spans;
};
LibraryPieces library_pieces(const std::string& model, const std::string& text) {
  const SentencePieceLibrary& library = sentence_piece_library();
  pentatron_sentence_piece* handle = nullptr;
  EXPECT_EQ(library.open(model.data(), model.size(), &handle), nullptr);
  LibraryPieces pieces;
  const auto take = [](void* context, int id, std::size_t begin, std::size_t end) {
    auto& into = *static_cast<LibraryPieces*>(context);
    into.ids.push_back(id);
    into.spans.emplace_back(begin, end);
  };
  EXPECT_EQ(library.spans(handle, text.data(), text.size(), take, &pieces), nullptr);
  library.close(handle);
  return pieces;
}

// Long stretches of unknown characters, of one kind or many, some of which are known together with
// others: what is shortened on its way to the library has the pieces and places of the whole text.
TEST(SentencePieceUnknown, LongStretchesHaveTheLibrarysPieces) {
  std::vector<std::string> lines = testing::some_lines();
  for (int i = 0; i < 40; ++i) lines.emplace_back("b\u00e9 \uac00\ud55c abc");
  for (const char* settings :
       {"model_type=unigram\nvocab_size=200\nhard_vocab_limit=false\n",
        "model_type=unigram\nvocab_size=200\nhard_vocab_limit=false\nadd_dummy_prefix=false\n",
        "model_type=bpe\nvocab_size=150\nnormalization_rule_name=identity\n"}) {
    const std::string model = testing::trained_model(lines, settings);
    const auto tokenizer = testing::tokenizer_of(model);
    const std::vector<std::string> of = {"\u4e8c", "\u1112", "\u1161", "\u11ab", "e",     "\u0301",
                                         "abc ",   "\uff76", "\u3099", "Q",      "\u200b"};
    std::mt19937 rng(6);
    for (int trial = 0; trial < 25; ++trial) {
      std::string text;
      while (text.size() < 60'000) {
        const std::size_t kinds = 1 + rng() % 3;
        std::vector<std::string> some;
        for (std::size_t i = 0; i < kinds; ++i) some.push_back(of[rng() % of.size()]);
        const std::size_t times = rng() % 3 == 0 ? 1 + rng() % 9000 : 1 + rng() % 4;
        for (std::size_t i = 0; i < times; ++i) text += some[rng() % kinds];
      }
      const LibraryPieces expected = library_pieces(model, text);
      const Ids ids = tokenizer->encode(text);
      ASSERT_EQ(ids, expected.ids) << settings << trial;
      const std::vector<TokenSpan> spans = tokenizer->spans(text, ids);
      ASSERT_EQ(spans.size(), expected.spans.size());
      for (std::size_t i = 0; i < spans.size(); ++i) {
        ASSERT_EQ(std::pair(spans[i].begin, spans[i].end), expected.spans[i])
            << settings << trial << " piece " << i;
      }
    }
  }
}

// What the middle kept apart does not come to stand side by side.
TEST(SentencePieceUnknown, WhatIsKnownTogetherStaysApart) {
  const std::string text =
      std::string(6'000, 'x') + std::string(12'000, '-') + std::string(6'000, 'y');
  const auto is_unknown = [](std::string_view part) {
    return part.find("xy") == std::string::npos;
  };
  EXPECT_EQ(ShortenedText(text, 256, is_unknown).text().find("xy"), std::string::npos);
  // Alone, each of them is cut.
  const auto short_size = [&](char c) {
    return ShortenedText(std::string(24'000, c), 256, is_unknown).text().size();
  };
  EXPECT_LT(short_size('x'), 12'000U);
  EXPECT_LT(short_size('y'), 12'000U);
}

// And they are shortened.
TEST(SentencePieceUnknown, LongStretchesAreCutShort) {
  std::string text = "abc ";
  for (int i = 0; i < 20'000; ++i) text += "\u4e8c";
  const ShortenedText shorter(text + " abc", 256, [](std::string_view part) {
    return part.find(' ') == std::string::npos;
  });
  EXPECT_LT(shorter.text().size(), 10'000U);
  EXPECT_EQ(shorter.in_whole(shorter.text().size()), text.size() + 4);
  EXPECT_EQ(shorter.in_whole(4), 4U);
  EXPECT_TRUE(shorter.text().ends_with("\u4e8c abc"));
}

TEST(SentencePieceSpans, ByHand) {
  // Lines of one word: it is a piece, and so is each letter.
  const auto tokenizer = testing::tokenizer_of(testing::trained_model(
      std::vector<std::string>(300, "abcd abcd"),
      "model_type=bpe\nvocab_size=273\nbyte_fallback=true\nhard_vocab_limit=false\n"));
  const std::string text = "  abcd\u3000abcd\u20ac ";
  const Ids ids = tokenizer->encode(text);
  // Outer spaces go, the ideographic one is a space; the euro sign is three bytes, of which the
  // last stands for the character.
  ASSERT_EQ(ids.size(), 5U);
  EXPECT_EQ(tokenizer->decode(ids), "abcd abcd\u20ac");
  EXPECT_EQ(tokenizer->spans(text, ids),
            (std::vector<TokenSpan>{{2, 6}, {6, 13}, {13, 13}, {13, 13}, {13, 16}}));
}

// Every piece is valid UTF-8 and certain, and they join to the text of all ids.
TEST(SentencePieceStreaming, JoinsToTheText) {
  for (const std::string& kind : kKinds) {
    const auto tokenizer = model_of(kind);
    std::mt19937 rng(10);
    const Ids all_bytes = tokenizer->encode("\u20ac\U0001F642");
    for (int trial = 0; trial < 600; ++trial) {
      Ids ids = tokenizer->encode(random_line(rng));
      for (unsigned i = 0; i < rng() % 6; ++i) {
        const auto id =
            static_cast<std::int32_t>(rng() % static_cast<std::uint64_t>(tokenizer->vocab_size()));
        ids.insert(ids.begin() + static_cast<std::ptrdiff_t>(rng() % (ids.size() + 1)),
                   rng() % 3 == 0 ? all_bytes[rng() % all_bytes.size()] : id);
      }
      StreamingDecoder decoder(*tokenizer);
      const std::string whole = tokenizer->decode_utf8(ids);
      std::string joined;
      for (const std::int32_t id : ids) {
        const std::string piece = decoder.add(id);
        ASSERT_EQ(replace_invalid_utf8(piece), piece) << kind;
        joined += piece;
        ASSERT_TRUE(whole.starts_with(joined)) << kind << ": " << joined << " | " << whole;
      }
      joined += decoder.finish();
      ASSERT_EQ(joined, whole) << kind;
    }
  }
}

const std::string& model_without_extra_spaces() {
  static const std::string kModel =
      testing::trained_model(testing::some_lines(),
                             "pad_id=3\nmodel_type=unigram\nvocab_size=400\nhard_vocab_limit="
                             "false\nbyte_fallback=true\n");
  return kModel;
}

Ids joined(const std::vector<Ids>& parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// What Megatron's wrapper makes of extra spaces, by hand: each becomes " MARK ", the text is cut at
// the marks, and each part is encoded with a mark behind it, whose last id goes.
TEST(SentencePieceOptions, ExtraSpacesAreKept) {
  const auto plain = testing::tokenizer_of(model_without_extra_spaces());
  const auto keeping =
      testing::tokenizer_of(model_without_extra_spaces(), {.ignore_extra_whitespaces = false});
  ASSERT_TRUE(plain->drops_extra_spaces());
  const auto part = [&](const std::string& text) {
    Ids ids = plain->encode(text + "\u262f");
    ids.pop_back();
    return ids;
  };
  EXPECT_EQ(keeping->encode("  a  b "),
            joined({part(" "), part("  "), part("  a  "), part("  b ")}));
  EXPECT_EQ(keeping->encode("a b"), part("a b"));
  EXPECT_EQ(keeping->encode("a  "), joined({part("a  "), part("  ")}));
  // The end may stand before a newline; a mark in the text is a mark.
  EXPECT_EQ(keeping->encode("a \nb"), part("a \nb"));
  EXPECT_EQ(keeping->encode("a \n"), part("a "));
  EXPECT_EQ(keeping->encode("a\u262fb"), joined({part("a"), part("b")}));
  EXPECT_EQ(keeping->encode(""), Ids{});
  EXPECT_NE(keeping->encode("  a  b "), plain->encode("  a  b "));
  EXPECT_NE(keeping->identity_hash(), plain->identity_hash());
  expect_error(ErrorKind::kUnsupported, "where a token stands",
               [&] { (void)keeping->spans("a", keeping->encode("a")); });
  // A model that keeps spaces has none to mark.
  const auto llama = testing::trained_model(testing::some_lines(),
                                            "model_type=bpe\nvocab_size=500\nbyte_fallback=true\n"
                                            "normalization_rule_name=identity\n"
                                            "remove_extra_whitespaces=false\n");
  const auto as_is = testing::tokenizer_of(llama, {.ignore_extra_whitespaces = false});
  EXPECT_FALSE(as_is->drops_extra_spaces());
  EXPECT_EQ(as_is->encode(" a  b "), testing::tokenizer_of(llama)->encode(" a  b "));
  EXPECT_EQ(as_is->identity_hash(), testing::tokenizer_of(llama)->identity_hash());
}

TEST(SentencePieceOptions, LegacyFindsSpecialTokens) {
  const auto plain = testing::tokenizer_of(model_without_extra_spaces());
  const auto size = static_cast<std::int32_t>(plain->vocab_size());
  const auto legacy = testing::tokenizer_of(
      model_without_extra_spaces(),
      {.legacy = true, .special_tokens = {"<one>", "</s>", "<two>", "<one>"}});
  // What the model has keeps its id, what stands twice has one.
  EXPECT_EQ(legacy->vocab_size(), size + 2);
  EXPECT_EQ(legacy->token_id("<one>"), size);
  EXPECT_EQ(legacy->token_id("</s>"), plain->token_id("</s>"));
  EXPECT_EQ(legacy->token_id("<two>"), size + 1);
  EXPECT_TRUE(legacy->is_special(size + 1));
  EXPECT_EQ(legacy->eod(), plain->eod());
  const Ids a = plain->encode("a");
  const Ids b = plain->encode("b");
  EXPECT_EQ(legacy->encode("a<one>b<two><one>"), joined({a, {size}, b, {size + 1, size}}));
  EXPECT_EQ(legacy->encode("<one>"), Ids{size});
  EXPECT_EQ(legacy->encode("b</s>"), joined({b, {*plain->token_id("</s>")}}));
  EXPECT_EQ(legacy->encode("ab"), plain->encode("ab"));
  // The text is that of the parts, with spaces around the tokens and none at its ends.
  EXPECT_EQ(legacy->decode(legacy->encode("a<one>b")), "a <one> b");
  EXPECT_EQ(legacy->decode(Ids{size, size + 1}), "<one>  <two>");
  EXPECT_NE(legacy->identity_hash(), plain->identity_hash());
  expect_error(ErrorKind::kConfig, "an empty token", [&] {
    (void)testing::tokenizer_of(model_without_extra_spaces(),
                                {.legacy = true, .special_tokens = {""}});
  });
  // A space that the model makes of the begin of a text behind a token is left out, but not in what
  // comes after the last token.
  const auto separator = plain->token_id("\u2581");
  ASSERT_TRUE(separator);
  const Ids unknown = plain->encode("\u4e2d");
  ASSERT_EQ(unknown.front(), *separator);
  EXPECT_EQ(legacy->encode("<one>\u4e2d<two>\u4e2d"),
            joined({{size}, Ids(unknown.begin() + 1, unknown.end()), {size + 1}, unknown}));
  // Many of one token and none of the others: linear.
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "<one>";
  EXPECT_EQ(legacy->encode(many), Ids(100'000, size));
}

TEST(SentencePieceTokenizer, DamagedModelsAreRefused) {
  const std::string model = testing::trained_model(
      testing::some_lines(), "model_type=bpe\nvocab_size=400\nbyte_fallback=true\n");
  const TempFolder folder;
  const auto path = folder.path() / "tokenizer.model";
  std::mt19937 rng(12);
  for (int trial = 0; trial < 200; ++trial) {
    std::string damaged = model;
    if (trial % 2 == 0) damaged.resize(rng() % model.size());
    for (unsigned i = 0; i < rng() % 4 && !damaged.empty(); ++i) {
      damaged[rng() % damaged.size()] = static_cast<char>(rng());
    }
    write_file_atomically(path, damaged);
    try {
      const SentencePieceTokenizer tokenizer(path);
      const Ids ids = tokenizer.encode("abc hij \u20ac");
      (void)tokenizer.decode(ids);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kData) << error.what();
    }
  }
}

#endif

}  // namespace
}  // namespace pentatron::tokenizers
