// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace pentatron {
namespace {

// Expected texts in this file were printed by CPython 3.11.
TEST(BaseFormat, FloatsAsPythonPrintsThem) {
  const std::vector<std::pair<double, const char*>> table = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {0.1, "0.1"},
      {1e-5, "1e-05"},
      {1e-4, "0.0001"},
      {0.00012345, "0.00012345"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {123456789012345678.0, "1.2345678901234568e+17"},
      {1.5e300, "1.5e+300"},
      {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {2.0 / 3, "0.6666666666666666"},
      {100.0, "100.0"},
      {9999999999999998.0, "9999999999999998.0"},
      {1e22, "1e+22"},
      {1e23, "1e+23"},
      {0.3 + 0.6, "0.8999999999999999"},
      {12345.678, "12345.678"},
      {-2.5e-7, "-2.5e-07"},
      {1234567.0, "1234567.0"}};
  for (const auto& [value, text] : table) EXPECT_EQ(python_repr(value), text);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(python_repr(infinity), "inf");
  EXPECT_EQ(python_repr(-infinity), "-inf");
  EXPECT_EQ(python_repr(std::nan("")), "nan");
  EXPECT_EQ(python_json_float(infinity), "Infinity");
  EXPECT_EQ(python_json_float(-infinity), "-Infinity");
  EXPECT_EQ(python_json_float(std::nan("")), "NaN");
  EXPECT_EQ(python_json_float(1e-5), "1e-05");
}

TEST(BaseFormat, FloatsReadBackEqual) {
  std::uint64_t state = 1;
  for (int i = 0; i < 20'000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const double value =
        std::ldexp(static_cast<double>(state >> 11), static_cast<int>(state % 200) - 150);
    ASSERT_EQ(std::stod(python_repr(value)), value) << python_repr(value);
  }
}

TEST(BaseFormat, OtherValues) {
  EXPECT_EQ(python_repr(true), "True");
  EXPECT_EQ(python_repr(false), "False");
  EXPECT_EQ(python_repr(-7), "-7");
  EXPECT_EQ(python_repr(std::uint64_t{18446744073709551615U}), "18446744073709551615");
  EXPECT_EQ(python_repr(std::nullopt), "None");
  EXPECT_EQ(python_repr(std::optional<int>()), "None");
  EXPECT_EQ(python_repr(std::optional<double>(0.5)), "0.5");
  EXPECT_EQ(python_repr(std::vector<int>{1, 2}), "[1, 2]");
  EXPECT_EQ(python_repr(std::vector<int>{}), "[]");
  EXPECT_EQ(python_repr(std::vector<bool>{true, false}), "[True, False]");
  EXPECT_EQ(python_repr(std::vector<std::string>{"a", "it's"}), "['a', \"it's\"]");
  EXPECT_EQ(python_repr(std::vector<std::vector<int>>{{1}, {}}), "[[1], []]");
  EXPECT_EQ(python_repr(std::vector<std::optional<int>>{1, std::nullopt}), "[1, None]");
  EXPECT_EQ(python_repr(0.5F), "0.5");
  EXPECT_EQ(python_repr("abc"), "'abc'");
}

TEST(BaseFormat, TextAsReprAndJson) {
  struct Row {
    std::string text;
    const char* repr;
    const char* json;
  };
  const std::vector<Row> table = {
      {"", "''", "\"\""},
      {"it's", "\"it's\"", "\"it's\""},
      {"say \"hi\"", "'say \"hi\"'", "\"say \\\"hi\\\"\""},
      {"both ' and \"", "'both \\' and \"'", "\"both ' and \\\"\""},
      {"a\\b", "'a\\\\b'", "\"a\\\\b\""},
      {std::string("tab\tnl\n\r\0\x7f\x1b", 11), "'tab\\tnl\\n\\r\\x00\\x7f\\x1b'",
       "\"tab\\tnl\\n\\r\\u0000\\u007f\\u001b\""},
      {"é中😀", "'é中😀'", "\"\\u00e9\\u4e2d\\ud83d\\ude00\""},
      {"\u00a0\u00ad\u200b\u2028\ufeff\U000e0001", "'\\xa0\\xad\\u200b\\u2028\\ufeff\\U000e0001'",
       "\"\\u00a0\\u00ad\\u200b\\u2028\\ufeff\\udb40\\udc01\""},
      {"\xff\xc0\x80ok\xe4\xb8", "'\\udcff\\udcc0\\udc80ok\\udce4\\udcb8'",
       "\"\\udcff\\udcc0\\udc80ok\\udce4\\udcb8\""}};
  for (const Row& row : table) {
    EXPECT_EQ(python_repr(row.text), row.repr);
    EXPECT_EQ(python_json_text(row.text), row.json);
  }
  EXPECT_EQ(python_json_text("\b\f"), "\"\\b\\f\"");
}

TEST(BaseFormat, LongNamesAreCut) {
  EXPECT_EQ(quoted_for_message("a"), "'a'");
  EXPECT_EQ(quoted_for_message(std::string(1'000'000, 'x')), "'" + std::string(80, 'x') + "'...");
}

}  // namespace
}  // namespace pentatron
