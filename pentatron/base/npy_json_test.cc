// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "pentatron/base/json.h"
#include "pentatron/base/npy.h"
#include "pentatron/base/sha256.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"

namespace pentatron {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

template <typename T>
std::vector<T> counting(std::size_t size, T first = 0) {
  std::vector<T> values(size);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Writes, returns the md5 of the file, and checks that the values read back.
template <typename T>
std::string md5_of(const std::vector<T>& values, const std::vector<std::int64_t>& shape) {
  const TempFolder folder;
  const auto path = folder.path() / "x.npy";
  write_npy<T>(path, values, std::span<const std::int64_t>(shape));
  const MappedNpy read(path);
  EXPECT_EQ(read.header().shape, shape);
  const std::span<const T> back = read.values<T>();
  EXPECT_EQ(std::vector<T>(back.begin(), back.end()), values);
  return md5_hex(read_text_file(path));
}

TEST(BaseNpy, FilesEqualNumpys) {
  // Expected values: md5 of numpy.save's output, NumPy 2.4.6.
  EXPECT_EQ(md5_of(counting<std::int32_t>(10), {10}), "7cf26a32cbe80c1b00ab1d1bf0a949d2");
  EXPECT_EQ(md5_of(counting<std::int64_t>(6), {3, 2}), "f763c7208d66eefb2f92485093bb035b");
  EXPECT_EQ(md5_of(std::vector<double>{2.5}, {}), "c44e9cff0dbf54291e868f63e17d8f9f");
  EXPECT_EQ(md5_of(std::vector<std::uint16_t>{}, {0}), "f276ba2210b5bbd07de3e8e53e57cde8");
  EXPECT_EQ(md5_of(counting<std::uint32_t>(5), {5}), "f68e08f70b8f9f48db35401dd1705fc8");
  EXPECT_EQ(md5_of(counting<std::int16_t>(7, -3), {7}), "d6a3f3282346371c1dda832cdd0db274");
  EXPECT_EQ(md5_of(counting<std::uint16_t>(4), {4}), "e4784154fd42f60429d0fd87e7936846");
  EXPECT_EQ(md5_of(std::vector<float>{0, 0.25, 0.5, 0.75}, {4}),
            "6406afafe29bb9c6a99bef025e84b108");
  // A dict that ends exactly at a multiple of 64: NumPy pads by a whole 64.
  std::vector<std::int64_t> shape(13, 1);
  shape.push_back(100);
  EXPECT_EQ(make_npy_header(NpyType::kI4, shape).size(), 192U);
  EXPECT_EQ(md5_of(std::vector<std::int32_t>(100, 0), shape), "5230a7e208f30769e7642590962bd5fc");
}

TEST(BaseNpy, HeaderBytes) {
  const std::vector<std::int64_t> shape = {10};
  const std::string header = make_npy_header(NpyType::kI4, shape);
  const std::string dict = "{'descr': '<i4', 'fortran_order': False, 'shape': (10,), }";
  EXPECT_EQ(header, std::string("\x93NUMPY\x01\x00v\x00", 10) + dict +
                        std::string(128 - 10 - dict.size() - 1, ' ') + "\n");
}

std::string npy(const std::string& dict, std::size_t data_bytes, char major = 1) {
  std::string text = std::string("\x93NUMPY", 6) + major + '\0';
  // Data at a multiple of 16, as older NumPy versions align it.
  std::string padded = dict;
  while ((text.size() + (major == 1 ? 2 : 4) + padded.size() + 1) % 16 != 0) padded += ' ';
  padded += '\n';
  text += static_cast<char>(padded.size() & 0xff);
  text += static_cast<char>(padded.size() >> 8);
  if (major == 2) text += std::string(2, '\0');
  return text + padded + std::string(data_bytes, 'd');
}

NpyHeader parsed(const std::string& file) { return parse_npy(bytes_of(file), "f.npy"); }

TEST(BaseNpy, AcceptsOtherWritersSpelling) {
  EXPECT_EQ(parsed(npy("{\"shape\":(2,3),'fortran_order':False,'descr':'<i2'}", 12)).num_values,
            6U);
  EXPECT_EQ(parsed(npy("{'descr': '<i2', 'fortran_order': True, 'shape': (6,), }", 12)).shape,
            (std::vector<std::int64_t>{6}));
  EXPECT_EQ(parsed(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", 16, 2)).type,
            NpyType::kF8);
  EXPECT_EQ(parsed(npy("{'descr': '<f8', 'fortran_order': False, 'shape': ( ), }", 8)).num_values,
            1U);
}

TEST(BaseNpy, HostileFilesAreRefused) {
  const auto refused = [](const std::string& file, std::string_view part) {
    expect_error(ErrorKind::kData, part, [&] { (void)parsed(file); });
  };
  const auto shaped = [](const std::string& shape, std::size_t data_bytes = 12) {
    return npy("{'descr': '<i2', 'fortran_order': False, 'shape': " + shape + ", }", data_bytes);
  };
  const std::string good = shaped("(2, 3)");
  EXPECT_EQ(parsed(good).num_values, 6U);
  for (std::size_t size = 0; size < good.size(); ++size) refused(good.substr(0, size), "f.npy: ");
  refused(good + "x", "does not fit");
  refused("PK\x03\x04" + good, "no .npy file");
  refused(npy("{}", 0, 3), "version 3.0");
  refused(shaped("(3)"), "shape is no tuple");
  refused(shaped("(-1,)"), "something else than sizes");
  refused(shaped("(2.0,)"), "shape is no tuple");
  refused(shaped("(99999999999999999999,)"), "something else than sizes");
  refused(shaped("(4294967296, 4294967296)", 0), "does not fit");
  refused(shaped("(9223372036854775807, 2)", 0), "does not fit");
  refused(shaped("(4611686018427387904, 2)", 0), "does not fit");
  refused(shaped("(2, 3"), "something else than sizes");
  refused(shaped("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,6)"),
          "more than 32 dimensions");
  refused(npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }", 12), "column order");
  refused(npy("{'descr': '<i2', 'fortran_order': 1, 'shape': (6,), }", 12), "neither True");
  refused(npy("{'descr': '>i2', 'fortran_order': False, 'shape': (6,), }", 12), "dtype '>i2'");
  refused(npy("{'descr': '|O', 'fortran_order': False, 'shape': (6,), }", 12), "dtype '|O'");
  refused(npy("{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (6,)}", 12), "a string");
  refused(npy("{'descr': '<i2', 'fortran_order': False, }", 12), "a key is missing");
  refused(npy("{'descr': '<i2', 'descr': '<i2', }", 12), "repeated key 'descr'");
  refused(npy("{'descr': '<i2', 'fortran_order': False, 'shape': (6,), 'x': 1}", 12), "key 'x'");
  refused(npy("{'descr': '<i2', 'fortran_order': False, 'shape': (6,)} + x", 12), "after the dict");
  refused(npy("{'descr': '<i2", 12), "does not end");
  std::string odd = npy("{'descr': '<i2', 'fortran_order': False, 'shape': (6,)}", 12);
  odd[8] = static_cast<char>(odd[8] + 1);  // header one byte longer: data not aligned
  odd.insert(odd.size() - 12, " ");
  refused(odd, "not aligned");
}

TEST(BaseNpy, WrongTypeAndWrongCount) {
  const TempFolder folder;
  const auto path = folder.path() / "x.npy";
  write_npy<std::int32_t>(path, counting<std::int32_t>(3));
  const MappedNpy read(path);
  expect_error(ErrorKind::kData, "holds <i4, expected <u4",
               [&] { (void)read.values<std::uint32_t>(); });
  const std::vector<std::int64_t> shape = {2, 2};
  expect_error(ErrorKind::kInternal, "are not shape (2, 2)", [&] {
    write_npy<std::int32_t>(path, counting<std::int32_t>(3), std::span<const std::int64_t>(shape));
  });
}

TEST(BaseJson, ParsesAndKeepsValues) {
  const auto value = parse_json(R"({"a": [1, -2, 3.5, true, null, "x\u00e9"], "b": {"c": {}},
                                   "big": 18446744073709551615})",
                                "f.json");
  EXPECT_EQ(value, nlohmann::json::parse(R"({"a":[1,-2,3.5,true,null,"xé"],"b":{"c":{}},)"
                                         R"("big":18446744073709551615})"));
  EXPECT_EQ(parse_json("  7 ", "f"), 7);
  EXPECT_TRUE(value["a"][0].is_number_unsigned());
}

TEST(BaseJson, FaultsNameLineAndColumn) {
  const auto refused = [](std::string_view text, std::string_view part) {
    expect_error(ErrorKind::kData, part, [&] { (void)parse_json(text, "f.json"); });
  };
  refused("", "f.json:1:1: ");
  refused("{\n  \"a\": 1,\n  \"b\" 2\n}", "f.json:3:7: not valid JSON near");
  refused("{\n\"a\": [1, 2", "f.json:2:10: the text ends");
  refused("{\"a\":1,\n\"b\":2,\n\"a\":3}", "f.json:3:3: the key 'a' appears twice");
  refused("{\"a\":1} x", "f.json:1:9: ");
  refused("[1e999]", "f.json:1:6: number beyond");
  refused("[\"\xff\"]", "f.json:1:3: ");
  refused("[NaN]", "f.json:1:2: ");
  refused("[1,]", "f.json:1:4: ");
  refused("{'a':1}", "f.json:1:2: ");
  refused(std::string_view("7\n\0 x", 5), "f.json:2:1: a zero byte");
  refused("// x\n1", "f.json:1:1: ");
}

TEST(BaseJson, DepthIsBounded) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_NO_THROW((void)parse_json(nested(64), "f"));
  expect_error(ErrorKind::kData, "f:1:65: more than 64 levels",
               [&] { (void)parse_json(nested(65), "f"); });
  expect_error(ErrorKind::kData, "more than 64 levels",
               [&] { (void)parse_json(std::string(3'000'000, '['), "f"); });
}

TEST(BaseJson, DoublesReadBackEqual) {
  for (const double value : {0.1, 1e-5, 2.0 / 3, 1e300, 5e-324, 1.7976931348623157e308, -0.0, 1e16,
                             123456789.123456789, 10.8250546}) {
    const std::string text = dump_json(value);
    const auto back = parse_json(text, "f").get<double>();
    EXPECT_EQ(back, value) << text;
    EXPECT_EQ(std::signbit(back), std::signbit(value)) << text;
  }
  EXPECT_EQ(dump_json({{"b", 1}, {"a", {1.5, nullptr}}}), R"({"a":[1.5,null],"b":1})");
  EXPECT_EQ(dump_json({{"a", 1}}, 2), "{\n  \"a\": 1\n}");
  EXPECT_EQ(dump_json(std::numeric_limits<double>::quiet_NaN()), "null");
  expect_error(ErrorKind::kData, "cannot write JSON", [] { (void)dump_json("\xff"); });
}

}  // namespace
}  // namespace pentatron
