// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/indexed_dataset.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/inspect.h"
#include "pentatron/datasets/test_corpus.h"

namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;

// The corpus of the published vector: [1,2,3], [4,5], [6 | 7,8,9].
void write_vector(const std::string& prefix, TokenDtype dtype) {
  IndexedDatasetWriter writer(prefix, dtype);
  writer.add_sequence(std::vector<std::int32_t>{1, 2, 3});
  writer.end_document();
  writer.add_sequence(std::vector<std::int32_t>{4, 5});
  writer.end_document();
  writer.add_sequence(std::vector<std::int32_t>{6});
  writer.add_sequence(std::vector<std::int32_t>{7, 8, 9});
  writer.end_document();
  writer.finish();
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// The message of the error that opening throws.
std::string open_error(const std::string& prefix, ErrorKind kind = ErrorKind::kData) {
  try {
    const IndexedDataset dataset(prefix);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "";
}

class IndexedDatasetFiles : public ::testing::Test {
 protected:
  TempFolder folder_;
  std::string prefix_ = (folder_.path() / "c").string();

  // Replaces `size` bytes of the index at `at`.
  template <typename T>
  void patch(std::size_t at, T value) {
    std::string bytes = read_text_file(prefix_ + ".idx");
    std::memcpy(bytes.data() + at, &value, sizeof(T));
    testing::write_text(prefix_ + ".idx", bytes);
  }
};

TEST_F(IndexedDatasetFiles, WritesThePublishedBytes) {
  write_vector(prefix_, TokenDtype::kUint16);
  const std::string bytes = read_text_file(prefix_ + ".idx");
  EXPECT_EQ(bytes.size(), 114U);
  EXPECT_EQ(
      hex(bytes),
      "4d4d494449445800000100000000000000080400000000000000040000000000000003000000020000000100"
      "000003000000000000000000000006000000000000000a000000000000000c00000000000000000000000000"
      "0000010000000000000002000000000000000400000000000000");
  EXPECT_EQ(md5_hex(bytes), "65c4e3b97537366f7c36de9e0792dd2a");
  EXPECT_EQ(hex(read_text_file(prefix_ + ".bin")), "010002000300040005000600070008000900");
}

TEST_F(IndexedDatasetFiles, WritesThePublishedInt32Index) {
  write_vector(prefix_, TokenDtype::kInt32);
  EXPECT_EQ(testing::md5_of_file(prefix_ + ".idx"), "f7365c9103bad17c83a5ae55861cd862");
}

TEST_F(IndexedDatasetFiles, ReadsBackWhatWasWritten) {
  write_vector(prefix_, TokenDtype::kUint16);
  for (const bool mmap : {true, false}) {
    const IndexedDataset dataset(prefix_, {.mmap_bin_files = mmap});
    EXPECT_EQ(dataset.num_sequences(), 4);
    EXPECT_EQ(dataset.num_documents(), 3);
    EXPECT_EQ(dataset.num_tokens(), 9);
    EXPECT_EQ(dataset.document_range(2), std::pair(2L, 4L));
    EXPECT_EQ(testing::read_sequence(dataset, 3), (std::vector<std::int64_t>{7, 8, 9}));
    std::vector<std::int64_t> part(2);
    dataset.read(0, 1, part);
    EXPECT_EQ(part, (std::vector<std::int64_t>{2, 3}));
    EXPECT_THROW(dataset.read(0, 2, part), Error);
    EXPECT_THROW(dataset.read(4, 0, part), Error);
    EXPECT_THROW(dataset.read(0, -1, part), Error);
  }
}

TEST_F(IndexedDatasetFiles, ReadsEveryIntegerDtype) {
  // Tokens 1 and 2 in each width; int8 and int16 are signed.
  const std::vector<std::pair<int, std::size_t>> codes = {{1, 1}, {2, 1}, {3, 2},
                                                          {4, 4}, {5, 8}, {8, 2}};
  for (const auto& [code, width] : codes) {
    fs::remove(prefix_ + ".bin");
    fs::remove(prefix_ + ".idx");
    testing::write_corpus(prefix_, {{1, 2}});
    std::string bin(2 * width, '\0');
    bin[0] = 1;
    bin[width] = 2;
    testing::write_text(prefix_ + ".bin", bin);
    patch<std::uint8_t>(17, static_cast<std::uint8_t>(code));
    const IndexedDataset dataset(prefix_);
    EXPECT_EQ(testing::read_sequence(dataset, 0), (std::vector<std::int64_t>{1, 2})) << code;
  }
}

TEST_F(IndexedDatasetFiles, EveryDamagedFieldIsNamed) {
  struct Damage {
    std::function<void()> apply;
    std::string expected;
  };
  // Tables of the vector: lengths at 34, offsets at 50, documents at 82.
  const std::vector<Damage> damages = {
      {[&] { patch<char>(0, 'X'); }, "magic at byte 0"},
      {[&] { patch<char>(8, 'X'); }, "magic at byte 0"},
      {[&] { patch<std::uint64_t>(9, 2); }, "version at byte 9: expected 1, found 2"},
      {[&] { patch<std::uint8_t>(17, 0); }, "dtype code at byte 17: expected 1 to 8, found 0"},
      {[&] { patch<std::uint8_t>(17, 9); }, "found 9"},
      {[&] { patch<std::uint64_t>(18, ~0ULL); }, "number of sequences at byte 18"},
      {[&] { patch<std::uint64_t>(18, 1ULL << 62); }, "number of sequences at byte 18"},
      {[&] { patch<std::uint64_t>(18, 5); }, "size: expected 126 bytes"},
      {[&] { patch<std::uint64_t>(26, 0); }, "entries of the document index at byte 26: found 0"},
      {[&] { patch<std::uint64_t>(26, ~0ULL); }, "entries of the document index at byte 26"},
      {[&] { patch<std::int32_t>(38, -1); }, "length of sequence 1 at byte 38"},
      {[&] { patch<std::int32_t>(38, 3); },
       "offset of sequence 2 at byte 66: expected 12, found 10"},
      {[&] { patch<std::int32_t>(46, 4); }, "sequence 3 ends at byte 20"},
      {[&] { patch<std::int32_t>(46, 2); }, "hold 16 bytes"},
      {[&] { patch<std::int64_t>(50, -2); },
       "offset of sequence 0 at byte 50: expected 0, found -2"},
      {[&] { patch<std::int64_t>(58, 7); }, "offset of sequence 1 at byte 58: expected 6, found 7"},
      {[&] { patch<std::int64_t>(82, 1); }, "first entry of the document index at byte 82"},
      {[&] { patch<std::int64_t>(98, 0); }, "entry 2 of the document index at byte 98"},
      {[&] { patch<std::int64_t>(98, 5); }, "entry 2 of the document index"},
      {[&] { testing::write_text(prefix_ + ".idx", ""); }, "found 0"},
      {[&] { fs::resize_file(prefix_ + ".idx", 33); }, "expected at least 34 bytes, found 33"},
      {[&] { fs::resize_file(prefix_ + ".idx", 113); }, "size: expected 114"},
      {[&] { fs::resize_file(prefix_ + ".idx", 119); }, "size: expected 114"},
      {[&] { fs::resize_file(prefix_ + ".bin", 17); }, "which has 17 bytes only"},
      {[&] { fs::resize_file(prefix_ + ".bin", 20); }, "but the .bin file has 20"},
      {[&] { testing::write_text(prefix_ + ".bin", ""); }, "which has 0 bytes only"},
  };
  for (const Damage& damage : damages) {
    fs::remove(prefix_ + ".bin");
    fs::remove(prefix_ + ".idx");
    write_vector(prefix_, TokenDtype::kUint16);
    damage.apply();
    const std::string message = open_error(prefix_);
    EXPECT_NE(message.find(damage.expected), std::string::npos)
        << "expected: " << damage.expected << "\nmessage: " << message;
    EXPECT_NE(message.find(prefix_ + ".idx"), std::string::npos) << message;
  }
}

TEST_F(IndexedDatasetFiles, AcceptsModesAndFloatsAreUnsupported) {
  write_vector(prefix_, TokenDtype::kUint16);
  testing::write_text(prefix_ + ".idx", read_text_file(prefix_ + ".idx") + std::string(4, '\1'));
  EXPECT_EQ(IndexedDataset(prefix_).num_sequences(), 4);
  fs::remove(prefix_ + ".idx");
  fs::remove(prefix_ + ".bin");
  write_vector(prefix_, TokenDtype::kInt32);
  patch<std::uint8_t>(17, 7);
  EXPECT_NE(open_error(prefix_, ErrorKind::kUnsupported).find("float32"), std::string::npos);
}

TEST_F(IndexedDatasetFiles, MissingFilesAreIoErrors) {
  EXPECT_NE(open_error(prefix_, ErrorKind::kIo).find(".idx"), std::string::npos);
  write_vector(prefix_, TokenDtype::kUint16);
  fs::remove(prefix_ + ".bin");
  EXPECT_NE(open_error(prefix_, ErrorKind::kIo).find(".bin"), std::string::npos);
}

TEST_F(IndexedDatasetFiles, MoreThan2To31Tokens) {
  // A sparse file: two sequences, the second past 4 GiB.
  constexpr std::int32_t kLong = 2147483647;
  testing::write_corpus(prefix_, {{1}, {2, 3}});
  patch<std::int32_t>(34, kLong);
  patch<std::int64_t>(34 + 8 + 8, 2LL * kLong);
  fs::resize_file(prefix_ + ".bin", 0);
  fs::resize_file(prefix_ + ".bin", 2ULL * kLong);
  {
    std::ofstream bin(prefix_ + ".bin", std::ios::binary | std::ios::app);
    bin.write("\x05\x00\x06\x00", 4);
  }
  for (const bool mmap : {true, false}) {
    const IndexedDataset dataset(prefix_, {.mmap_bin_files = mmap});
    EXPECT_EQ(dataset.num_tokens(), kLong + 2LL);
    EXPECT_EQ(testing::read_sequence(dataset, 1), (std::vector<std::int64_t>{5, 6}));
    std::vector<std::int64_t> last(1, -1);
    dataset.read(0, kLong - 1, last);
    EXPECT_EQ(last[0], 0);
  }
}

TEST_F(IndexedDatasetFiles, WriterRefusesWhatTheDtypeCannotHold) {
  IndexedDatasetWriter narrow(prefix_, TokenDtype::kUint16);
  EXPECT_THROW(narrow.add_sequence(std::vector<std::int32_t>{65536}), Error);
  EXPECT_THROW(narrow.add_sequence(std::vector<std::int32_t>{-1}), Error);
}

TEST_F(IndexedDatasetFiles, WriterNeverReplacesUnlessTold) {
  testing::write_corpus(prefix_, {{1, 2}});
  EXPECT_THROW(IndexedDatasetWriter(prefix_, TokenDtype::kUint16), Error);
  {
    IndexedDatasetWriter writer(prefix_, TokenDtype::kUint16, true);
    writer.add_sequence(std::vector<std::int32_t>{3});
    writer.end_document();
    // The old files stay until finish().
    EXPECT_EQ(IndexedDataset(prefix_).num_tokens(), 2);
    writer.finish();
  }
  EXPECT_EQ(IndexedDataset(prefix_).num_tokens(), 1);
}

TEST_F(IndexedDatasetFiles, WriterWithoutFinishLeavesNothing) {
  {
    IndexedDatasetWriter writer(prefix_, TokenDtype::kUint16);
    writer.add_sequence(std::vector<std::int32_t>(600000, 7));
    writer.end_document();
  }
  EXPECT_TRUE(fs::is_empty(fs::path(prefix_).parent_path()));
}

TEST(TokenDtype, VocabularyDecides) {
  EXPECT_EQ(dtype_for_vocabulary(65499), TokenDtype::kUint16);
  EXPECT_EQ(dtype_for_vocabulary(65500), TokenDtype::kInt32);
}

TEST_F(IndexedDatasetFiles, Summary) {
  write_vector(prefix_, TokenDtype::kUint16);
  const DatasetSummary summary = summarize_dataset(prefix_, 5);
  EXPECT_EQ(summary.num_sequences, 4);
  EXPECT_EQ(summary.num_documents, 3);
  EXPECT_EQ(summary.num_tokens, 9);
  EXPECT_EQ(summary.sequence_lengths.min, 1);
  EXPECT_EQ(summary.sequence_lengths.max, 3);
  EXPECT_DOUBLE_EQ(summary.sequence_lengths.mean, 2.25);
  EXPECT_EQ(summary.first_tokens, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  const std::string text = format_summary(summary);
  EXPECT_NE(text.find("dtype: uint16\nsequences: 4\ndocuments: 3 (0 empty)\ntokens: 9\n"),
            std::string::npos)
      << text;
}

TEST_F(IndexedDatasetFiles, EmptyDatasetOpens) {
  IndexedDatasetWriter(prefix_, TokenDtype::kUint16).finish();
  const IndexedDataset dataset(prefix_);
  EXPECT_EQ(dataset.num_sequences(), 0);
  EXPECT_EQ(dataset.num_documents(), 0);
  EXPECT_EQ(summarize_dataset(prefix_).sequence_lengths.mean, 0);
}

TEST(Cases, MegatronLM_718) {
  const TempFolder folder;
  const std::string prefix = (folder.path() / "c").string();
  testing::write_corpus(prefix, {{1, 2}, {3}, {4}});
  std::string bytes = read_text_file(prefix + ".idx");
  const std::int64_t wrong = 2;
  std::memcpy(bytes.data() + bytes.size() - 8, &wrong, 8);
  testing::write_text(prefix + ".idx", bytes);
  const std::string message = open_error(prefix);
  EXPECT_NE(message.find("expected the number of sequences 3, found 2"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace pentatron::datasets
