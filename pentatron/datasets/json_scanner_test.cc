// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/json_scanner.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "pentatron/datasets/jsonl.h"

namespace pentatron::datasets {
namespace {

// Column and message of what is wrong, "" when nothing is.
std::string problem_of(JsonlParser& parser, std::string_view line) {
  const auto problem = parser.parse(line);
  return problem ? std::to_string(problem->column) + ": " + problem->message : "";
}

TEST(JsonScanner, FieldsOfTheOutermostObject) {
  const std::string line = R"( {"a" : [1, {"b": 2}] , "c": "x\"y","d":{} } )";
  const JsonScan scan = scan_json_object(line);
  ASSERT_FALSE(scan.error) << *scan.error;
  std::vector<std::string> found;
  for (const JsonField& field : scan.fields) {
    found.push_back(line.substr(field.key_begin, field.key_end - field.key_begin) + "=" +
                    line.substr(field.value_begin, field.value_end - field.value_begin));
  }
  EXPECT_EQ(found,
            (std::vector<std::string>{R"("a"=[1, {"b": 2}])", R"("c"="x\"y")", R"("d"={})"}));
  EXPECT_TRUE(scan_json_object("{}").fields.empty());
}

// Every way to break a small document in one place: the scanner and another reader agree on what is
// JSON, and the scanner's place is where the two texts begin to differ or later.
TEST(JsonScanner, AgreesWithAnotherReaderOnDamagedText) {
  const std::string good =
      R"({"k": [1, -2.5e+3, true, null], "s": "a\u00e9\\", "o": {"p": false}})";
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    const auto at = random() % text.size();
    constexpr std::string_view kBytes = "{}[]\",:0123456789.eE+-tfnu\\ a/";
    const char byte = kBytes[random() % kBytes.size()];
    switch (random() % 3) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      default:
        text.erase(at, 1);
        break;
    }
    const JsonScan scan = scan_json_object(text);
    const bool other = nlohmann::json::accept(text) && nlohmann::json::parse(text).is_object();
    // A lone surrogate is the only thing that the scanner leaves to others here.
    if (scan.error.has_value() == other) {
      EXPECT_NE(text.find("\\ud"), std::string::npos) << text;
      continue;
    }
    if (!scan.error) continue;
    ++refused;
    EXPECT_LE(scan.error_offset, text.size());
    // A word is refused where it begins.
    constexpr std::size_t kLongestWord = 5;
    EXPECT_GE(scan.error_offset + kLongestWord, at) << text << " " << *scan.error;
  }
  EXPECT_GT(refused, 5000);
}

TEST(JsonScanner, DepthIsLimited) {
  const auto nested = [](int depth) {
    return R"({"a": )" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_FALSE(scan_json_object(nested(1023)).error);
  EXPECT_TRUE(scan_json_object(nested(1024)).error);
}

// F5: what stands in fields that nobody reads is never converted.
TEST(JsonlParser, F5_FieldsThatNobodyReads) {
  JsonlParser parser({"text", "title"});
  for (const char* const value :
       {"18446744073709551616", "1e309", "-1e999", "NaN", "Infinity", "-Infinity", R"("\ud800")",
        R"(["\udc00", {"x": 1e400}])", "123456789012345678901234567890"}) {
    const std::string line = std::string(R"({"id": )") + value + R"(, "text": "a\u00e9", "n": )" +
                             value + R"(, "ti\u0074le": ["b", "c"]})";
    EXPECT_EQ(problem_of(parser, line), "") << value;
    ASSERT_EQ(parser.texts()[0].size(), 1U) << value;
    EXPECT_EQ(parser.texts()[0][0], "a\xc3\xa9");
    EXPECT_EQ(parser.texts()[1], (std::vector<std::string_view>{"b", "c"}));
    // In a field that is asked for they are no text; the column is that of the value.
    const std::string asked = std::string(R"({"id": 1, "text": )") + value + R"(, "title": ""})";
    EXPECT_TRUE(problem_of(parser, asked).starts_with("19: key \"text\" ")) << asked;
  }
  // Grammar counts everywhere.
  EXPECT_EQ(problem_of(parser, R"({"id": 01, "text": "a"})"),
            "9: not one JSON object: expected a comma or the end of the object or list");
  EXPECT_TRUE(problem_of(parser, R"({"id": nan, "text": "a"})").starts_with("8: "));
}

// A14: a key that stands twice.
TEST(JsonlParser, A14_KeysThatStandTwice) {
  JsonlParser parser({"text"});
  EXPECT_EQ(problem_of(parser, R"({"text": "a", "text": "b"})"),
            "15: key \"text\" stands twice (--json-keys)");
  EXPECT_EQ(problem_of(parser, R"({"text": "a", "te\u0078t": "b"})"),
            "15: key \"text\" stands twice (--json-keys)");
  // Of a key that nobody reads it is nobody's affair.
  EXPECT_EQ(problem_of(parser, R"({"text": "a", "x": 1, "x": 2})"), "");
}

TEST(JsonlParser, MissingKeyNamesTheKeysThere) {
  JsonlParser parser({"text"});
  EXPECT_EQ(problem_of(parser, R"({"body": "a", "id": 3})"),
            R"(1: key "text" is missing (--json-keys); the line has "body", "id")");
  EXPECT_EQ(problem_of(parser, "{}"), R"(1: key "text" is missing (--json-keys))");
}

// Bytes behind a line that may be read change nothing, whatever they are and wherever it ends.
TEST(JsonlParser, WhatFollowsTheLineIsNoPartOfIt) {
  const std::string whole = R"({"n": 12345, "text": "a\u00e9\")"
                            "\xc3\xa9\xe2\x82\xac"
                            R"(\ud83d\ude00", "l": [true, null]})";
  JsonlParser alone({"text"});
  JsonlParser beside({"text"});
  int good = 0;
  for (const std::string& more : {whole, std::string(200, '}'), std::string(200, '\xa9')}) {
    for (std::size_t size = 0; size <= whole.size(); ++size) {
      const std::string buffer = whole.substr(0, size) + more;
      const std::string_view line = std::string_view(buffer).substr(0, size);
      const auto problem = beside.parse(line, buffer.size());
      EXPECT_EQ(problem ? std::to_string(problem->column) + ": " + problem->message : "",
                problem_of(alone, std::string(line)));
      if (problem) continue;
      ++good;
      EXPECT_EQ(beside.texts(), alone.texts());
    }
  }
  EXPECT_EQ(good, 3);
}

TEST(JsonlParser, PlaceOfInvalidUtf8) {
  EXPECT_EQ(invalid_utf8_offset("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"), std::nullopt);
  EXPECT_EQ(invalid_utf8_offset("\xc3\xa9\xff"), 2U);
  EXPECT_EQ(invalid_utf8_offset("ab\xe2\x82"), 2U);
  EXPECT_EQ(invalid_utf8_offset("a\xed\xa0\x80"), 1U);  // a surrogate
  EXPECT_EQ(invalid_utf8_offset("a\xc0\xaf"), 1U);      // too long a form
}

}  // namespace
}  // namespace pentatron::datasets
