// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"

namespace pentatron {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

std::string with_length(std::uint64_t length, std::string_view rest) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + std::string(rest);
}

std::string file_of(std::string_view header, std::size_t data_bytes) {
  return with_length(header.size(), std::string(header) + std::string(data_bytes, 'd'));
}

void expect_refused(const std::string& file, std::string_view part) {
  expect_error(ErrorKind::kData, part, [&] { (void)parse_safetensors(bytes_of(file), "f.st"); });
  expect_error(ErrorKind::kData,
               "f.st: ", [&] { (void)parse_safetensors(bytes_of(file), "f.st"); });
}

// One tensor `a` with these raw JSON values.
std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets,
                std::size_t data_bytes) {
  return file_of(
      fmt::format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets),
      data_bytes);
}

TEST(BaseSafetensors, WrittenFilesReadBack) {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> b = {-7};
  const std::vector<SafetensorsItem> items = {
      {"z.first", "F32", {2, 3}, std::as_bytes(std::span(a))},
      {"scalar \"é\"", "I64", {}, std::as_bytes(std::span(b))},
      {"empty", "BF16", {4, 0}, {}}};
  const TempFolder folder;
  const auto path = folder.path() / "x.safetensors";
  AtomicFile file(path);
  write_safetensors(items, {{"format", "pt"}, {"k\n", "v"}},
                    [&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
  const SafetensorsFile read(path);
  EXPECT_EQ(read.header().data_offset % 8, 0U);
  EXPECT_EQ(read.header().entries.size(), 3U);
  EXPECT_EQ(read.header().metadata.at("k\n"), "v");
  EXPECT_EQ(read.header().entries.at("z.first").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(read.header().entries.at("z.first").begin, 0U);
  EXPECT_EQ(read.header().entries.at("scalar \"é\"").begin, 24U);
  EXPECT_TRUE(read.header().entries.at("scalar \"é\"").shape.empty());
  EXPECT_EQ(std::memcmp(read.bytes("z.first").data(), a.data(), 24), 0);
  EXPECT_EQ(read.bytes("z.first").size(), 24U);
  EXPECT_TRUE(read.bytes("empty").empty());
  expect_error(ErrorKind::kData, "no tensor 'none'", [&] { (void)read.bytes("none"); });
}

TEST(BaseSafetensors, HeaderBytesAreThePublishedOnes) {
  const std::vector<float> a = {1, 2, 3, 4};
  const std::vector<SafetensorsItem> items = {{"test", "F32", {2, 2}, std::as_bytes(std::span(a))}};
  const std::string text = R"({"test":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
  EXPECT_EQ(make_safetensors_header(items, {}), text + std::string((8 - text.size() % 8) % 8, ' '));
  EXPECT_EQ(make_safetensors_header({}, {}), "{}      ");
}

TEST(BaseSafetensors, KnownDtypes) {
  for (const char* name : {"F64", "I64", "U64"}) EXPECT_EQ(safetensors_item_bytes(name), 8U);
  for (const char* name : {"F32", "I32", "U32"}) EXPECT_EQ(safetensors_item_bytes(name), 4U);
  for (const char* name : {"F16", "BF16", "I16", "U16"})
    EXPECT_EQ(safetensors_item_bytes(name), 2U);
  for (const char* name : {"I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"}) {
    EXPECT_EQ(safetensors_item_bytes(name), 1U);
  }
  EXPECT_FALSE(safetensors_item_bytes("f32").has_value());
  EXPECT_FALSE(safetensors_item_bytes("").has_value());
}

TEST(BaseSafetensors, AcceptsWhatTheFormatAllows) {
  const auto accepted = [](const std::string& file) {
    return parse_safetensors(bytes_of(file), "f.st").entries.size();
  };
  EXPECT_EQ(accepted(file_of("{}", 0)), 0U);
  EXPECT_EQ(accepted(file_of("{}   \n ", 0)), 0U);
  EXPECT_EQ(accepted(one(R"("U8")", "[]", "[0,1]", 1)), 1U);
  EXPECT_EQ(accepted(one(R"("U8")", "[0,9223372036854775807]", "[0,0]", 0)), 1U);
  // Two empty tensors at one place share no byte; order in the header is free.
  EXPECT_EQ(accepted(file_of(R"({"b":{"data_offsets":[1,2],"shape":[1],"dtype":"U8"},)"
                             R"("e":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},)"
                             R"("a":{"dtype":"I8","shape":[1,1],"data_offsets":[0,1]}})",
                             2)),
            3U);
}

TEST(BaseSafetensors, LyingLengths) {
  expect_refused("", "too few");
  expect_refused("1234567", "too few");
  const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  const std::string good = file_of(header, 4);
  for (std::size_t size = 0; size < good.size(); ++size) {
    expect_refused(good.substr(0, size), "");
  }
  expect_refused(good + "x", "the file at 5");
  for (const std::uint64_t length :
       {std::uint64_t{60}, std::uint64_t{100'000'000}, std::uint64_t{100'000'001},
        std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max()}) {
    expect_refused(with_length(length, header + "dddd"), "header length");
  }
  expect_refused(with_length(0, "dddd"), "does not begin");
  expect_refused(with_length(header.size() - 1, header + "dddd"), "no valid JSON");
  expect_refused(with_length(header.size() + 1, header + "dddd"), "lies at bytes 0 to 4");
}

TEST(BaseSafetensors, HeaderMustBeOneStrictJsonObject) {
  expect_refused(file_of(" {}", 0), "does not begin");
  expect_refused(file_of("[]", 0), "does not begin");
  expect_refused(file_of("\xef\xbb\xbf{}", 0), "does not begin");
  expect_refused(file_of("{}{}", 0), "no valid JSON");
  expect_refused(file_of(std::string("{}\0", 3), 0), "a zero byte");
  expect_refused(file_of(std::string("{}\0 a second file", 17), 0), "a zero byte");
  expect_refused(file_of("{} // x", 0), "no valid JSON");
  expect_refused(file_of("{\"a\xff\":1}", 0), "no valid JSON in UTF-8");
  expect_refused(file_of("{\"\xed\xa0\x80\":1}", 0), "no valid JSON in UTF-8");
  expect_refused(file_of(R"({"a":1})", 0), "a number is not allowed");
  expect_refused(file_of(R"({"a":null})", 0), "null is not allowed");
  expect_refused(file_of(R"({"a":"F32"})", 0), "a string is not allowed");
  expect_refused(file_of(R"({"a":[1]})", 0), "a list is not allowed");
  expect_refused(file_of(R"({"a":{}})", 0), "needs dtype, shape");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[]}})", 0), "needs dtype, shape");
  expect_refused(file_of(R"({"a":{"extra":1}})", 0), "unknown field 'extra'");
  expect_refused(file_of("{\"a\":" + std::string(1'000'000, '['), 0), "a list is not allowed");
  std::string nested;
  for (int i = 0; i < 100'000; ++i) nested += "{\"dtype\":";
  expect_refused(file_of(nested, 0), "an object is not allowed");
}

TEST(BaseSafetensors, DuplicateKeys) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  const std::string again = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]})";
  expect_refused(file_of("{" + a + "," + again + "}", 2), "'a' appears twice");
  // The same name spelt with an escape.
  expect_refused(
      file_of(R"({"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)" + a + "}", 2),
      "'a' appears twice");
  expect_refused(file_of(R"({"a":{"dtype":"U8","dtype":"U8"}})", 1), "two fields 'dtype'");
  expect_refused(file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "appears twice");
  expect_refused(file_of(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "'k' appears twice");
}

TEST(BaseSafetensors, MetadataHoldsStringsOnly) {
  for (const char* value : {"1", "null", "true", "1.5", "-1", "[\"x\"]", "{\"x\":\"y\"}"}) {
    expect_refused(file_of(fmt::format(R"({{"__metadata__":{{"k":{}}}}})", value), 0),
                   "is not allowed under '__metadata__'");
  }
  expect_refused(file_of(R"({"__metadata__":"x"})", 0), "is not allowed");
  expect_refused(file_of(R"({"__metadata__":null})", 0), "is not allowed");
}

TEST(BaseSafetensors, BadDtypeShapeAndOffsets) {
  expect_refused(one(R"("F31")", "[1]", "[0,4]", 4), "unknown dtype 'F31'");
  expect_refused(one("7", "[1]", "[0,4]", 4), "a number is not allowed");
  expect_refused(one("[\"F32\"]", "[1]", "[0,4]", 4), "a list is not allowed");
  for (const char* shape : {"[-1]", "[-0]", "[1.0]", "[1e2]", "[true]", "[null]", "[\"1\"]",
                            "[[1]]", "4", "null", "\"4\"", "[18446744073709551616]", "[1e999]",
                            "[18446744073709551615]", "[9223372036854775808]"}) {
    expect_refused(one(R"("U8")", shape, "[0,1]", 1), "");
  }
  expect_refused(one(R"("U8")", "[9223372036854775807,2]", "[0,1]", 1), "which is not dtype");
  expect_refused(one(R"("F64")", "[2305843009213693952]", "[0,0]", 0), "which is not dtype");
  expect_refused(one(R"("U8")", "[4294967296,4294967296]", "[0,0]", 0), "which is not dtype");
  expect_refused(one(R"("F32")", "[2]", "[0,4]", 4), "which is not dtype");
  expect_refused(one(R"("U8")", "[1]", "[1,0]", 1), "lies at bytes 1 to 0");
  expect_refused(one(R"("U8")", "[2]", "[0,2]", 1), "lies at bytes 0 to 2");
  expect_refused(one(R"("U8")", "[1]", "[0]", 1), "two data_offsets");
  expect_refused(one(R"("U8")", "[1]", "[0,1,1]", 1), "more than two data_offsets");
  expect_refused(one(R"("U8")", "[1]", "[-1,0]", 1), "a negative number is not allowed");
  expect_refused(one(R"("U8")", "[1]", "[0,18446744073709551615]", 1), "lies at bytes");
  std::string ones = "[1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  expect_refused(one(R"("U8")", ones + "]", "[0,1]", 1), "more than 64 sizes");
}

TEST(BaseSafetensors, OverlapsAndHoles) {
  const auto pair = [](int b0, int b1, std::size_t data_bytes) {
    return file_of(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},)"
                               R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                               b1 - b0, b0, b1),
                   data_bytes);
  };
  EXPECT_NO_THROW((void)parse_safetensors(bytes_of(pair(4, 6, 6)), "f.st"));
  expect_refused(pair(0, 4, 4), "overlap");
  expect_refused(pair(3, 6, 6), "overlap");
  expect_refused(pair(5, 6, 6), "a hole");
  expect_refused(pair(4, 6, 7), "the file at 7");
  expect_refused(one(R"("U8")", "[1]", "[1,2]", 2), "a hole");
  expect_refused(file_of("{}", 1), "the file at 1");
}

TEST(BaseSafetensors, MillionsOfTensorsOnOneRegionEndQuickly) {
  // The header limit stops more than two million entries; the entry limit comes first.
  std::string header = "{";
  for (int i = 0; header.size() < 90'000'000; ++i) {
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})",
                          i == 0 ? "" : ",", i);
  }
  header += "}";
  const std::string file = file_of(header, 9);
  const auto start = std::chrono::steady_clock::now();
  expect_error(ErrorKind::kData, "more than 1048576 tensors",
               [&] { (void)parse_safetensors(bytes_of(file), "f.st"); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(BaseSafetensors, WriterRefusesWhatTheReaderWould) {
  const std::string data(4, 'd');
  const SafetensorsItem good = {"a", "U8", {4}, bytes_of(data)};
  const auto refused = [](std::vector<SafetensorsItem> items, ErrorKind kind,
                          std::string_view part) {
    expect_error(kind, part, [&] { (void)make_safetensors_header(items, {}); });
  };
  refused({good, good}, ErrorKind::kInternal, "'a' is taken");
  refused({{"__metadata__", "U8", {4}, bytes_of(data)}}, ErrorKind::kInternal, "is taken");
  refused({{"a", "U9", {4}, bytes_of(data)}}, ErrorKind::kInternal, "unknown dtype U9");
  refused({{"a", "U8", {5}, bytes_of(data)}}, ErrorKind::kInternal, "has 4 bytes");
  refused({{"a", "U8", {-4}, bytes_of(data)}}, ErrorKind::kInternal, "has 4 bytes");
  refused({{"\xff", "U8", {4}, bytes_of(data)}}, ErrorKind::kData, "not UTF-8");
}

}  // namespace
}  // namespace pentatron
