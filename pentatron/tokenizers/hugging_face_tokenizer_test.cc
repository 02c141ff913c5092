// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/hugging_face_tokenizer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/tokenizers/bpe_test_support.h"
#include "pentatron/tokenizers/bpe_tokenizer.h"
#include "pentatron/tokenizers/byte_alphabet.h"
#include "pentatron/tokenizers/tokenizer_factory.h"
#include "pentatron/tokenizers/unigram_model.h"
#include "pentatron/tokenizers/word_piece_model.h"

// Equality with the reference libraries on real vocabularies is
// tools/reference/tokenizer_families.py; here: the loader, its errors, and what needs no library.
namespace pentatron::tokenizers {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

struct Folder {
  TempFolder folder{"hf_tokenizer"};
  explicit Folder(const json& tokenizer, const json& config = {{"eos_token", "<|endoftext|>"}}) {
    write("tokenizer.json", tokenizer.dump());
    write("tokenizer_config.json", config.dump());
  }
  void write(const std::string& name, const std::string& text) const {
    AtomicFile file(folder.path() / name);
    file.write(text);
    file.commit();
  }
  [[nodiscard]] std::unique_ptr<StagedTokenizer> load(
      const HuggingFaceOptions& options = {}) const {
    return load_hugging_face_tokenizer(folder.path(), options);
  }
};

// As the reference library does with characters: unknown where there is such a token, else left
// out.
TEST(HuggingFaceTokenizer, BytesWithoutATokenAreUnknown) {
  json some = testing::small_tokenizer_json();
  for (const char* byte : {"\x04", "\x06"}) {
    EXPECT_EQ(some["model"]["vocab"].erase(bytes_to_visible(byte)), 1U);
  }
  const BpeTokenizer whole(testing::small_vocabulary());
  const Ids x = whole.encode("x");
  const Ids y = whole.encode("y");
  const auto joined = [&](const Ids& between) {
    Ids ids = x;
    ids.insert(ids.end(), between.begin(), between.end());
    ids.insert(ids.end(), y.begin(), y.end());
    return ids;
  };
  const std::int32_t unknown = whole.eod();
  EXPECT_EQ(Folder(some).load()->encode("x\x04\x06y"), joined({}));
  some["model"]["unk_token"] = "<|endoftext|>";
  EXPECT_EQ(Folder(some).load()->encode("x\x04\x06y"), joined({unknown, unknown}));
  some["model"]["fuse_unk"] = true;
  EXPECT_EQ(Folder(some).load()->encode("x\x04\x06y"), joined({unknown}));
}

TEST(HuggingFaceTokenizer, EqualsTheByteLevelTokenizerOfTheSameVocabulary) {
  const Folder folder(testing::small_tokenizer_json());
  const auto loaded = folder.load();
  const BpeTokenizer direct(testing::small_vocabulary());
  for (const std::string text : {"the dog's day", "", " \n\n x", "\xff\x00 z<|endoftext|>"}) {
    EXPECT_EQ(loaded->encode(text), direct.encode(text)) << text;
    EXPECT_EQ(loaded->encode(text, SpecialTokens::kParse),
              direct.encode(text, SpecialTokens::kParse))
        << text;
    EXPECT_EQ(loaded->decode(loaded->encode(text)), text);
  }
  EXPECT_EQ(loaded->eod(), direct.eod());
  EXPECT_EQ(loaded->vocab_size(), direct.vocab_size());
  EXPECT_EQ(loaded->pad(), -1);
}

TEST(HuggingFaceTokenizer, TemplateAndSpecialTokens) {
  json tokenizer = testing::small_tokenizer_json();
  const std::int32_t eod = testing::small_vocabulary().eod();
  tokenizer["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<|endoftext|>"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", json::array()},
      {"special_tokens", {{"<|endoftext|>", {{"id", "<|endoftext|>"}, {"ids", {eod}}}}}}};
  const Folder folder(tokenizer);
  const auto with = folder.load();
  const auto without = folder.load({.include_special_tokens = false});
  Ids expected = without->encode("the");
  EXPECT_NE(expected.front(), eod);
  expected.insert(expected.begin(), eod);
  EXPECT_EQ(with->encode("the"), expected);
  EXPECT_NE(with->identity_hash(), without->identity_hash());

  const auto more = folder.load({.special_tokens = {"<one>", "<|endoftext|>", "<two>"}});
  EXPECT_EQ(more->vocab_size(), with->vocab_size() + 2);
  EXPECT_EQ(more->encode("<two>", SpecialTokens::kParse),
            (Ids{eod, static_cast<std::int32_t>(with->vocab_size()) + 1}));
  EXPECT_EQ(more->decode(more->encode("a<two>b", SpecialTokens::kParse)), "<|endoftext|>a<two>b");
}

TEST(HuggingFaceTokenizer, ConfigNamesTheSpecialTokensAndTheChatTemplate) {
  const Folder folder(testing::small_tokenizer_json(),
                      {{"bos_token", {{"content", "<|endoftext|>"}}},
                       {"pad_token", nullptr},
                       {"chat_template", "{{ messages }}"}});
  const auto tokenizer = folder.load();
  EXPECT_EQ(tokenizer->bos(), testing::small_vocabulary().eod());
  EXPECT_THROW(static_cast<void>(tokenizer->eod()), Error);
  EXPECT_EQ(tokenizer->chat_template(), "{{ messages }}");
  folder.write("special_tokens_map.json", R"({"eos_token": "<|endoftext|>"})");
  folder.write("chat_template.jinja", "{{ other }}");
  EXPECT_EQ(folder.load()->eod(), testing::small_vocabulary().eod());
  EXPECT_EQ(folder.load()->chat_template(), "{{ other }}");
}

ErrorKind kind_of(const json& tokenizer, std::string* message) {
  try {
    static_cast<void>(Folder(tokenizer).load());
  } catch (const Error& error) {
    *message = error.what();
    return error.kind();
  }
  ADD_FAILURE() << "accepted";
  return ErrorKind::kInternal;
}

TEST(HuggingFaceTokenizer, WhatIsNotSupportedIsRefusedByName) {
  const auto with = [](const char* pointer, const json& value) {
    json tokenizer = testing::small_tokenizer_json();
    tokenizer[json::json_pointer(pointer)] = value;
    return tokenizer;
  };
  const std::vector<std::tuple<json, ErrorKind, std::string>> cases = {
      {with("/normalizer", {{"type", "ByteLevel"}}), ErrorKind::kUnsupported, "ByteLevel"},
      {with("/normalizer", {{"type", "Precompiled"}}), ErrorKind::kData, "precompiled_charsmap"},
      {with("/pre_tokenizer", {{"type", "UnicodeScripts"}}), ErrorKind::kUnsupported,
       "UnicodeScripts"},
      {with("/decoder", {{"type", "CTC"}}), ErrorKind::kUnsupported, "CTC"},
      {with("/post_processor", {{"type", "Other"}}), ErrorKind::kUnsupported, "Other"},
      {with("/model/type", "WordLevel"), ErrorKind::kUnsupported, "WordLevel"},
      {with("/model/dropout", 0.1), ErrorKind::kUnsupported, "dropout"},
      {with("/model/end_of_word_suffix", "</w>"), ErrorKind::kUnsupported, "end_of_word_suffix"},
      {with("/pre_tokenizer",
            {{"type", "Split"}, {"pattern", {{"Regex", "(a+)+$"}}}, {"behavior", "Isolated"}}),
       ErrorKind::kData, "anchors"},
      {with("/model/merges", {"a"}), ErrorKind::kData, "merge 0"},
      {with("/model/merges", {"th e"}), ErrorKind::kData, "merge 0"},
      {with("/model/vocab", json::array()), ErrorKind::kData, "vocab"},
      {with("/model/vocab/x", 99'999'999), ErrorKind::kData, "token id"},
      {with("/model/vocab/x", -1), ErrorKind::kData, "token id"},
      {json::array(), ErrorKind::kData, "not an object"}};
  for (const auto& [tokenizer, kind, part] : cases) {
    std::string message;
    EXPECT_EQ(kind_of(tokenizer, &message), kind) << part;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
  }
}

// What is replaced, stripped or split by is one character: the empty text once had no end.
TEST(HuggingFaceTokenizer, CharactersAreOne) {
  const json space = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const json split = {{"type", "CharDelimiterSplit"}, {"delimiter", "|"}};
  for (const auto& [stage, good, key] : {std::tuple{"decoder", space, "replacement"},
                                         {"pre_tokenizer", space, "replacement"},
                                         {"decoder", strip, "content"},
                                         {"pre_tokenizer", split, "delimiter"}}) {
    json tokenizer = testing::small_tokenizer_json();
    tokenizer[stage] = good;
    EXPECT_NO_THROW((void)Folder(tokenizer).load()) << stage << good;
    for (const char* text : {"", "ab", "\u2581\u2581"}) {
      tokenizer[stage][key] = text;
      std::string message;
      EXPECT_EQ(kind_of(tokenizer, &message), ErrorKind::kData) << stage << " " << key;
      EXPECT_NE(message.find("expected one character"), std::string::npos) << message;
    }
  }
}

TEST(HuggingFaceTokenizer, FoldersOfOtherKindsNameTheirType) {
  const Folder folder(testing::small_tokenizer_json());
  std::filesystem::remove(folder.folder.path() / "tokenizer.json");
  const auto expect = [&](const std::string& part) {
    expect_error(ErrorKind::kIo, part, [&] { (void)folder.load(); });
  };
  expect("holds no tokenizer.json");
  folder.write("vocab.txt", "");
  expect("BertWordPieceCase");
  folder.write("merges.txt", "");
  expect("GPT2BPETokenizer");
  folder.write("tokenizer.model", "");
  expect("Llama2Tokenizer");
}

// They are of a call of the library, and Megatron's calls switch them off.
TEST(HuggingFaceTokenizer, TruncationAndPaddingDoNotTouchTheText) {
  json root = testing::small_tokenizer_json();
  const auto plain = Folder(root).load();
  root["truncation"] = {{"max_length", 2}, {"stride", 0}, {"strategy", "LongestFirst"}};
  root["padding"] = {{"strategy", {{"Fixed", 64}}}, {"pad_id", 0}, {"pad_token", "!"}};
  const auto limited = Folder(root).load();
  const std::string text = "the dog and the other dogs there";
  EXPECT_EQ(limited->encode(text), plain->encode(text));
  EXPECT_EQ(limited->identity_hash(), plain->identity_hash());
}

TEST(HuggingFaceTokenizer, ThreadsShareOne) {
  const Folder folder(testing::small_tokenizer_json());
  const auto tokenizer = folder.load();
  const std::string text = "the dog and the other dogs there ";
  const Ids expected = tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) wrong += tokenizer->encode(text) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Unigram by hand: the best segmentation of "abab" under these scores is "ab" "ab".
TEST(SubwordModel, UnigramTakesTheBestSum) {
  const UnigramModel model(TokenList({"<unk>", "a", "b", "ab", "aba"}, "test"), {0, -3, -3, -2, -3},
                           0, false);
  Ids ids;
  model.encode("abab", ids);
  EXPECT_EQ(ids, (Ids{3, 3}));
  ids.clear();
  model.encode("axxb", ids);  // two unknown characters are one unknown token
  EXPECT_EQ(ids, (Ids{1, 0, 2}));
}

TEST(SubwordModel, WordPieceTakesTheLongestFromTheLeft) {
  const WordPieceModel model(TokenList({"[UNK]", "un", "##aff", "##able", "u", "##n"}, "test"),
                             "##", 0, 10);
  Ids ids;
  model.encode("unaffable", ids);
  EXPECT_EQ(ids, (Ids{1, 2, 3}));
  model.encode("unx", ids);
  model.encode("unununununun", ids);
  EXPECT_EQ(ids, (Ids{1, 2, 3, 0, 0}));
}

}  // namespace
}  // namespace pentatron::tokenizers
