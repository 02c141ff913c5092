// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/byte_source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/compress_test_support.h"
#include "pentatron/datasets/memory_test_support.h"
#include "pentatron/datasets/test_corpus.h"

namespace pentatron::datasets {
namespace {

using Pack = std::function<std::string(std::string_view)>;

struct Format {
  std::string ending;
  Pack pack;
};

std::vector<Format> formats() {
  return {{".gz", testing::gzip},
          {".zst", testing::zstd},
          {".bz2", testing::bzip2},
          {".xz", testing::xz}};
}

std::string read_all(ByteSource& source, std::size_t piece = 1 << 16) {
  std::string all;
  std::string buffer(piece, '\0');
  while (const std::size_t count = source.read(buffer)) all.append(buffer, 0, count);
  EXPECT_EQ(source.read(buffer), 0U);
  return all;
}

std::string some_text(std::size_t bytes) {
  std::string text;
  for (std::uint64_t i = 0; text.size() < bytes; ++i) {
    text += "line " + std::to_string(i * 2654435761U % 100003) + "\n";
  }
  return text;
}

class ByteSourceTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name, std::string_view content) {
    const std::string path = (folder_.path() / name).string();
    testing::write_text(path, content);
    return path;
  }
  // Message of the kData error that opening and reading gives.
  std::string refusal(const std::string& path) {
    try {
      (void)read_all(*open_byte_source(path));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData) << error.what();
      return error.what();
    }
    ADD_FAILURE() << path << " was accepted";
    return "";
  }
  TempFolder folder_;
};

TEST_F(ByteSourceTest, UnpacksByContentNotByName) {
  const std::string text = some_text(700'000);
  for (const Format& format : formats()) {
    const std::string packed = format.pack(text);
    for (const std::string& name : {"a" + format.ending, std::string("a.jsonl")}) {
      const std::string path = file(name, packed);
      const auto source = open_byte_source(path);
      EXPECT_EQ(read_all(*source), text) << name;
      EXPECT_EQ(source->file_bytes(), packed.size()) << name;
      EXPECT_EQ(read_all(*open_byte_source(path), 7), text) << name;
    }
  }
  EXPECT_EQ(read_all(*open_byte_source(file("plain", text))), text);
  EXPECT_EQ(read_all(*open_byte_source(file("nothing", ""))), "");
}

TEST_F(ByteSourceTest, StreamsLaidEndToEndAreOne) {
  for (const Format& format : formats()) {
    const std::string two = format.pack("first\n") + format.pack("") + format.pack("second\n");
    EXPECT_EQ(read_all(*open_byte_source(file("two" + format.ending, two))), "first\nsecond\n");
  }
  // Padding with zeros, as tapes and xz itself leave it.
  EXPECT_EQ(read_all(*open_byte_source(file("p.gz", testing::gzip("a") + std::string(512, '\0')))),
            "a");
  EXPECT_EQ(read_all(*open_byte_source(
                file("p.xz", testing::xz("a") + std::string(8, '\0') + testing::xz("b")))),
            "ab");
}

TEST_F(ByteSourceTest, SkipsToAPlace) {
  const std::string text = some_text(900'000);
  std::vector<Format> all = formats();
  all.push_back({".txt", [](std::string_view plain) { return std::string(plain); }});
  for (const Format& format : all) {
    const std::string path = file("s" + format.ending, format.pack(text));
    const auto source = open_byte_source(path);
    source->skip(654'321);
    EXPECT_EQ(read_all(*source), text.substr(654'321)) << format.ending;
    EXPECT_THROW(open_byte_source(path)->skip(text.size() + 1), Error) << format.ending;
  }
}

TEST_F(ByteSourceTest, DamageIsNamed) {
  const std::string text = some_text(300'000);
  for (const Format& format : formats()) {
    const std::string packed = format.pack(text);
    const std::string cut =
        refusal(file("cut" + format.ending, packed.substr(0, packed.size() / 2)));
    EXPECT_NE(cut.find("it ends early"), std::string::npos) << cut;
    EXPECT_NE(cut.find("cut" + format.ending + ": no whole "), std::string::npos) << cut;
    std::string flipped = packed;
    for (std::size_t at = packed.size() / 2; at < packed.size() / 2 + 40; ++at) flipped[at] ^= 0x55;
    EXPECT_NE(refusal(file("bad" + format.ending, flipped)).find("bad" + format.ending),
              std::string::npos);
    EXPECT_NE(refusal(file("tail" + format.ending, packed + "garbage")).find("no whole "),
              std::string::npos);
    EXPECT_NE(refusal(file("plain" + format.ending, "{\"text\": 1}")).find("misnamed"),
              std::string::npos);
    EXPECT_NE(refusal(file("empty" + format.ending, "")).find("is empty"), std::string::npos);
  }
}

TEST_F(ByteSourceTest, ForeignFilesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> foreign = {
      {std::string("\xff\xfe{\0", 4), "UTF-16 text"},
      {std::string("\xfe\xff\0{", 4), "UTF-16 text"},
      {std::string("{\0\"\0t\0", 6), "UTF-16 text"},
      {std::string("\0{\0\"\0t", 6), "UTF-16 text"},
      {"PK\x03\x04rest", "zip archive"},
      {"PAR1rest", "Parquet file"},
      {"\x04\x22\x4d\x18rest", "LZ4 file"},
      {std::string("MMIDIDX\0\0", 9), ".idx file"},
      {std::string(257, 'x') + "ustar  ", "tar archive"}};
  for (const auto& [content, what] : foreign) {
    const std::string message = refusal(file("f.jsonl", content));
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_NE(message.find("f.jsonl"), std::string::npos) << message;
  }
}

TEST_F(ByteSourceTest, APipeGivesAFewBytesAtATime) {
  const std::string path = (folder_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::string packed = testing::gzip("a line\n");
  std::thread writer([&] {
    std::ofstream out(path, std::ios::binary);
    for (const char c : packed) out << c << std::flush;
  });
  EXPECT_EQ(read_all(*open_byte_source(path)), "a line\n");
  writer.join();
}

// A gigabyte of one byte packs into a few kilobytes; unpacked piece by piece it stays small.
TEST_F(ByteSourceTest, MemoryStaysSmall) {
  std::string packed;
  const std::string block = testing::zstd(std::string(64 << 20, 'x'));
  for (int i = 0; i < 16; ++i) packed += block;
  const std::string path = file("big.zst", packed);
  const std::int64_t before = testing::reset_peak();
  const auto source = open_byte_source(path);
  source->skip(1ULL << 30);
  EXPECT_LT(testing::peak_bytes() - before, 64 << 20);
  std::string rest(1, '\0');
  EXPECT_EQ(source->read(rest), 0U);
}

}  // namespace
}  // namespace pentatron::datasets
