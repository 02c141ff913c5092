// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/merge.h"

#include <gtest/gtest.h>

#include <random>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/test_corpus.h"

namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;

using Sequence = std::vector<std::int32_t>;
using Nested = std::vector<std::vector<Sequence>>;  // documents of sequences

Nested random_documents(std::uint32_t seed, int count) {
  std::mt19937 random(seed);
  Nested documents(static_cast<std::size_t>(count));
  for (auto& document : documents) {
    document.resize(random() % 4);
    for (Sequence& sequence : document) {
      sequence.resize(random() % 50);
      for (std::int32_t& token : sequence) token = static_cast<std::int32_t>(random() % 60000);
    }
  }
  return documents;
}

void write_nested(const std::string& prefix, const Nested& documents,
                  TokenDtype dtype = TokenDtype::kUint16) {
  IndexedDatasetWriter writer(prefix, dtype);
  for (const auto& document : documents) {
    for (const Sequence& sequence : document) writer.add_sequence(sequence);
    writer.end_document();
  }
  writer.finish();
}

class Merge : public ::testing::Test {
 protected:
  [[nodiscard]] std::string prefix(const std::string& name) const {
    return (folder_.path() / name).string();
  }
  [[nodiscard]] std::string bytes(const std::string& name, const char* extension) const {
    return read_text_file(prefix(name) + extension);
  }
  MergeStats merge(std::vector<std::string> inputs, bool multimodal = false) {
    return merge_datasets({.inputs = std::move(inputs),
                           .output_prefix = prefix("merged"),
                           .multimodal = multimodal,
                           .force = true});
  }
  void expect_error(ErrorKind kind, const std::string& words, std::vector<std::string> inputs,
                    bool multimodal = false) {
    try {
      (void)merge(std::move(inputs), multimodal);
      ADD_FAILURE() << "no error: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
    EXPECT_FALSE(fs::exists(prefix("merged") + ".bin"));
    EXPECT_FALSE(fs::exists(prefix("merged") + ".idx"));
  }
  // One int8 a sequence at the end of the index.
  void add_modes(const std::string& name, std::string modes) {
    testing::write_text(prefix(name) + ".idx", bytes(name, ".idx") + modes);
  }

  TempFolder folder_;
};

TEST_F(Merge, EqualsTheCorpusOfAllDocuments) {
  for (const TokenDtype dtype : {TokenDtype::kUint16, TokenDtype::kInt32}) {
    const TempFolder parts;
    const auto part = [&](const std::string& name) { return (parts.path() / name).string(); };
    Nested all;
    // Names whose order is that of their bytes, not of their making; one corpus has no documents.
    for (const auto& [name, count] : {std::pair("b", 20), {"B", 0}, {"a.x", 7}, {"a", 33}}) {
      write_nested(part(name), random_documents(static_cast<std::uint32_t>(count), count), dtype);
    }
    for (const int count : {0, 33, 7, 20}) {
      const Nested more = random_documents(static_cast<std::uint32_t>(count), count);
      all.insert(all.end(), more.begin(), more.end());
    }
    write_nested(prefix(std::string(to_string(dtype))), all, dtype);
    fs::create_directory(part("a"));  // the index caches of "a"
    const MergeStats stats = merge({parts.path().string()});
    EXPECT_EQ(stats.corpora, 4);
    EXPECT_EQ(stats.documents, 60);
    for (const char* extension : {".bin", ".idx"}) {
      EXPECT_EQ(bytes("merged", extension), bytes(std::string(to_string(dtype)), extension));
    }
    EXPECT_EQ(IndexedDataset(prefix("merged")).num_tokens(), stats.tokens);
    // The same by their names, with or without an extension.
    (void)merge({part("B"), part("a") + ".bin", part("a.x") + ".idx", part("b")});
    EXPECT_EQ(bytes("merged", ".idx"), bytes(std::string(to_string(dtype)), ".idx"));
  }
}

// A of three documents and B of two: the documents of B begin behind those of A.
TEST(Cases, MegatronLM_81) {
  const TempFolder folder;
  const auto prefix = [&](const char* name) { return (folder.path() / name).string(); };
  const testing::Documents a = {{1, 2, 3}, {4}, {5, 6}};
  const testing::Documents b = {{7, 8}, {9, 10, 11}};
  testing::Documents both = a;
  both.insert(both.end(), b.begin(), b.end());
  testing::write_corpus(prefix("A"), a);
  testing::write_corpus(prefix("B"), b);
  testing::write_corpus(prefix("both"), both);
  MergeOptions options;
  options.inputs = {prefix("A"), prefix("B")};
  options.output_prefix = prefix("merged");
  (void)merge_datasets(options);
  for (const std::string extension : {".bin", ".idx"}) {
    EXPECT_EQ(read_text_file(prefix("merged") + extension),
              read_text_file(prefix("both") + extension));
  }
  const IndexedDataset merged(prefix("merged"));
  EXPECT_EQ(merged.document_range(3), (std::pair<std::int64_t, std::int64_t>{3, 4}));
  EXPECT_EQ(testing::read_sequence(merged, 4), (std::vector<std::int64_t>{9, 10, 11}));
}

TEST_F(Merge, KeepsModes) {
  testing::write_corpus(prefix("a"), testing::counting_documents(3, 1));
  testing::write_corpus(prefix("b"), testing::counting_documents(2, 5));
  add_modes("a", std::string("\1\0\1", 3));
  expect_error(ErrorKind::kConfig, "modes", {prefix("a"), prefix("b")});
  expect_error(ErrorKind::kConfig, "--multimodal", {prefix("b")}, true);
  add_modes("b", std::string("\2\3", 2));
  const MergeStats stats = merge({prefix("a"), prefix("b")}, true);
  EXPECT_TRUE(stats.modes);
  EXPECT_TRUE(bytes("merged", ".idx").ends_with(std::string("\1\0\1\2\3", 5)));
  EXPECT_EQ(IndexedDataset(prefix("merged")).num_sequences(), 5);
}

TEST_F(Merge, NamesWhatCannotBeMerged) {
  testing::write_corpus(prefix("a"), testing::counting_documents(3, 1));
  testing::write_corpus(prefix("wide"), testing::counting_documents(3, 1), TokenDtype::kInt32);
  expect_error(ErrorKind::kConfig, "wide of int32", {prefix("a"), prefix("wide")});
  expect_error(ErrorKind::kConfig, "twice", {prefix("a"), prefix("a") + ".bin"});
  expect_error(ErrorKind::kIo, "none.bin is not there", {prefix("none")});
  fs::create_directory(prefix("empty"));
  expect_error(ErrorKind::kConfig, "holds no .bin", {prefix("empty")});
  testing::write_text(prefix("empty/alone.bin"), "");
  expect_error(ErrorKind::kIo, "alone.idx is not there", {prefix("empty")});
  testing::write_corpus(prefix("cut"), testing::counting_documents(3, 1));
  fs::resize_file(prefix("cut") + ".bin", 3);
  expect_error(ErrorKind::kData, "cut.idx", {prefix("a"), prefix("cut")});
  EXPECT_THROW(
      merge_datasets({.inputs = {prefix("a")}, .output_prefix = prefix("a"), .force = true}),
      Error);
  EXPECT_THROW(merge_datasets({.inputs = {prefix("a")}, .output_prefix = prefix("wide")}), Error);
}

}  // namespace
}  // namespace pentatron::datasets
