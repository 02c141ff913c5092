// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/tokenizer_factory.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/sha256.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/tokenizers/bpe_test_support.h"
#include "pentatron/tokenizers/null_tokenizer.h"

namespace pentatron::tokenizers {
namespace {

using Ids = std::vector<std::int32_t>;

// The fields of config::DataConfig that this module reads.
struct DataOptions {
  std::string tokenizer_type{};
  std::string tokenizer_model{};
  std::string vocab_file{};
  std::string merge_file{};
  std::vector<std::string> tokenizer_special_tokens{};
  std::string tiktoken_pattern{};
  std::int64_t tiktoken_num_special_tokens = 1000;
  bool tokenizer_hf_no_include_special_tokens = false;
  std::string tokenizer_metadata{};
  std::string chat_template{};
  bool tokenizer_sentencepiece_legacy = false;
  bool tokenizer_sentencepiece_ignore_extra_whitespaces = true;
  std::int64_t null_tokenizer_eod_id = -1;
  std::int64_t null_tokenizer_pad_id = -1;
};

template <typename Options>
ErrorKind kind_of(const Options& options, std::int64_t vocab_size = 0) {
  try {
    (void)make_tokenizer(options, vocab_size);
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::kInternal;
}

TEST(NullTokenizer, ReadsIntegers) {
  const NullTokenizer tokenizer(255);
  EXPECT_EQ(tokenizer.encode(" 1 2\n254\t0 "), (Ids{1, 2, 254, 0}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.decode(Ids{7, 0, 254}), "7 0 254");
  EXPECT_EQ(tokenizer.vocab_size(), 255);
  EXPECT_EQ(tokenizer.eod(), 254);
  EXPECT_EQ(tokenizer.pad(), -1);
  Ids ids{9};
  for (const char* bad :
       {"1 255", "1 -1", "1 x", "1 2.5", "1 99999999999999999999", "1,2", "1 0x1"}) {
    EXPECT_THROW(tokenizer.encode_append(bad, ids), Error) << bad;
    EXPECT_EQ(ids, Ids{9}) << bad;
  }
  EXPECT_THROW((void)tokenizer.decode(Ids{255}), Error);
}

TEST(NullTokenizer, ChecksItsIds) {
  const NullTokenizer tokenizer(100, 3, 5);
  EXPECT_EQ(tokenizer.eod(), 3);
  EXPECT_EQ(tokenizer.pad(), 5);
  EXPECT_THROW(NullTokenizer(0), Error);
  EXPECT_THROW(NullTokenizer(1LL << 31), Error);
  EXPECT_THROW(NullTokenizer(100, 100), Error);
  EXPECT_THROW(NullTokenizer(100, -1), Error);
  EXPECT_THROW(NullTokenizer(100, 3, 100), Error);
  EXPECT_NE(tokenizer.identity_hash(), NullTokenizer(100).identity_hash());
}

// Megatron's train index files for a null tokenizer of 255 ids are named by the MD5 of this text.
TEST(Tokenizer, DescriptionGivesMegatronsHash) {
  TokenizerDescription description = NullTokenizer(255).description();
  const auto md5 = [&] {
    return md5_hex(
        "{\n    \"class\": \"GPTDataset\",\n    \"dataset_path\": \"d\",\n    \"num_samples\": "
        "30,\n"
        "    \"index_split\": \"train\",\n    \"random_seed\": 1234,\n    \"sequence_length\": "
        "16,\n"
        "    \"split\": \"8,1,1\",\n    \"split_matrix\": [\n        [\n            0,\n           "
        " 0.8\n"
        "        ],\n        [\n            0.8,\n            0.9\n        ],\n        [\n"
        "            0.9,\n            1.0\n        ]\n    ],\n    \"tokenizer\": " +
        description_json(description, 1) + "\n}");
  };
  EXPECT_EQ(md5(), "e46c9841936cab33ddaac8b531fd658b");
  description.class_name = kMegatronTextClass0161;
  EXPECT_EQ(md5(), "3869802218277e6cb7fe402922206d28");
}

TEST(Tokenizer, DescriptionIsEscapedAsInPython) {
  const TokenizerDescription description{
      .class_name = "c", .tokenizer_path = "p\"\u00e9", .arguments = {{"k", "\U0001F642\n\x7F/"}}};
  EXPECT_EQ(description_json(description),
            "{\n    \"class\": \"c\",\n    \"tokenizer_path\": \"p\\\"\\u00e9\",\n"
            "    \"k\": \"\\ud83d\\ude42\\n\\u007f/\"\n}");
}

TEST(Factory, BuildsBothTypes) {
  const TempFolder folder("factory");
  DataOptions data{.tokenizer_type = "GPT2BPETokenizer",
                   .vocab_file = folder.path() / "vocab.json",
                   .merge_file = folder.path() / "merges.txt"};
  testing::small_vocabulary().save(data.vocab_file, data.merge_file);
  const auto bpe = make_tokenizer(data, 0);
  EXPECT_EQ(bpe->decode(bpe->encode("the dog")), "the dog");
  EXPECT_EQ(make_tokenizer(data, bpe->vocab_size())->identity_hash(), bpe->identity_hash());
  const TokenizerDescription description = bpe->description();
  EXPECT_EQ(description.tokenizer_path, "GPT2BPETokenizer");
  EXPECT_EQ(description.arguments.at(1),
            (std::pair<std::string, std::string>("vocab_file", data.vocab_file)));

  const auto null = make_tokenizer(DataOptions{.tokenizer_type = "NullTokenizer"}, 255);
  EXPECT_EQ(null->eod(), 254);
  EXPECT_EQ(null->description().arguments.size(), 1U);
  const auto resolved = make_tokenizer(
      DataOptions{.tokenizer_type = "NullTokenizer", .null_tokenizer_eod_id = 254}, 255);
  EXPECT_EQ(resolved->description().arguments, null->description().arguments);
  const auto given = make_tokenizer(DataOptions{.tokenizer_type = "NullTokenizer",
                                                .null_tokenizer_eod_id = 0,
                                                .null_tokenizer_pad_id = 1},
                                    255);
  EXPECT_EQ(given->eod(), 0);
  EXPECT_EQ(given->pad(), 1);
  EXPECT_EQ(given->description().arguments.size(), 3U);
}

TEST(Factory, RefusesWhatDoesNotFit) {
  const TempFolder folder("factory");
  DataOptions data{.tokenizer_type = "GPT2BPETokenizer",
                   .vocab_file = folder.path() / "vocab.json",
                   .merge_file = folder.path() / "merges.txt"};
  EXPECT_EQ(kind_of(data), ErrorKind::kIo);
  testing::small_vocabulary().save(data.vocab_file, data.merge_file);
  EXPECT_EQ(kind_of(data, 50257), ErrorKind::kConfig);
  data.merge_file.clear();
  EXPECT_EQ(kind_of(data), ErrorKind::kConfig);
  EXPECT_EQ(kind_of(DataOptions{.tokenizer_type = "NullTokenizer"}), ErrorKind::kConfig);
  EXPECT_EQ(kind_of(DataOptions{.tokenizer_type = "MultimodalTokenizer"}), ErrorKind::kUnsupported);
  for (const char* type : {"HuggingFaceTokenizer", "SFTTokenizer", "TikTokenizer",
                           "SentencePieceTokenizer", "Llama2Tokenizer", "BertWordPieceCase"}) {
    EXPECT_EQ(kind_of(DataOptions{.tokenizer_type = type}), ErrorKind::kConfig) << type;
    EXPECT_EQ(kind_of(DataOptions{.tokenizer_type = type,
                                  .tokenizer_model = "missing.json",
                                  .vocab_file = "missing.txt"}),
              ErrorKind::kIo)
        << type;
  }
  EXPECT_EQ(kind_of(DataOptions{.tokenizer_type = "GPT3Tokenizer"}), ErrorKind::kConfig);
  EXPECT_EQ(kind_of(DataOptions{}), ErrorKind::kConfig);
}

// F7: an empty merges.txt is refused, a cut one warned about; special tokens need no merge.
TEST(TokenizerFactory, F7_MergesThatAreMissing) {
  const TempFolder folder;
  const auto file = [&](const char* name) { return (folder.path() / name).string(); };
  std::vector<std::string> tokens{std::string(kEndOfText)};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* token : {"ab", "abc", "<extra>"}) tokens.emplace_back(token);
  BpeVocabulary::from_parts(tokens, {{'a' + 1, 'b' + 1}, {257, 'c' + 1}})
      .save(file("vocab.json"), file("merges.txt"));
  const auto load = [&](std::string_view merges) {
    write_file_atomically(file("other.txt"), merges);
    ::testing::internal::CaptureStderr();
    const auto capture = [] { return ::testing::internal::GetCapturedStderr(); };
    TokenizerOptions options;
    options.tokenizer_type = "GPT2BPETokenizer";
    options.vocab_file = file("vocab.json");
    options.merge_file = file("other.txt");
    try {
      (void)make_tokenizer(options);
    } catch (const Error& error) {
      return capture() + error.what();
    }
    return capture();
  };
  EXPECT_EQ(load("#version: 0.2\na b\nab c\n"), "");
  const std::string cut = load("#version: 0.2\na b\n");
  EXPECT_NE(cut.find("1 tokens of --vocab-file"), std::string::npos) << cut;
  EXPECT_NE(cut.find("(the first: 'abc'): is it cut?"), std::string::npos) << cut;
  for (const char* const empty : {"", "#version: 0.2\n"}) {
    const std::string refused = load(empty);
    EXPECT_NE(refused.find("holds no merge, but --vocab-file"), std::string::npos) << refused;
    EXPECT_NE(refused.find("2 tokens that need one (the first: 'ab')"), std::string::npos);
  }
}

}  // namespace
}  // namespace pentatron::tokenizers
