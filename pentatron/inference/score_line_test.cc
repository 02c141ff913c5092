// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/score_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pentatron/base/test_support.h"
#include "pentatron/inference/known_model_test_support.h"

namespace pentatron::inference {
namespace {

const test_support::LetterTokenizer kTokenizer;

ScoreLine read(const std::string& line) {
  auto result = read_score_line(line, kTokenizer, {.vocab_size = 8});
  if (const auto* problem = std::get_if<datasets::JsonlProblem>(&result)) {
    ADD_FAILURE() << line << ": " << problem->column << ": " << problem->message;
    return {};
  }
  return std::get<ScoreLine>(std::move(result));
}

TEST(ScoreLine, TextOrTokens) {
  EXPECT_EQ(read(R"({"text": "ab g"})").tokens, (std::vector<std::int32_t>{0, 1, 7, 6}));
  EXPECT_EQ(read(R"({"tokens": [3, 0, 7]})").tokens, (std::vector<std::int32_t>{3, 0, 7}));
  // Ids count where both stand, as in the output of an earlier call.
  const ScoreLine both = read(R"({"text": "ab", "tokens": [5], "logprobs": [], "sum": 0})");
  EXPECT_EQ(both.tokens, (std::vector<std::int32_t>{5}));
  EXPECT_EQ(both.fields, R"("text": "ab")");
  EXPECT_TRUE(read(R"({"tokens": []})").tokens.empty());
}

TEST(ScoreLine, OtherFieldsAreCopiedAsTheyStand) {
  const ScoreLine line =
      read(R"({"id" : 12345678901234567890.50, "a\u0062": {"x": [1, "}"]}, "text":"a", "n": NaN})");
  EXPECT_EQ(line.fields,
            R"("id": 12345678901234567890.50, "a\u0062": {"x": [1, "}"]}, "text": "a", "n": NaN)");
}

TEST(ScoreLine, ProblemsHaveAColumn) {
  const auto refused = [](const std::string& line, std::int64_t column, const std::string& part) {
    const auto result = read_score_line(line, kTokenizer, {.vocab_size = 8});
    const auto* problem = std::get_if<datasets::JsonlProblem>(&result);
    ASSERT_NE(problem, nullptr) << line;
    EXPECT_EQ(problem->column, column) << line << ": " << problem->message;
    EXPECT_NE(problem->message.find(part), std::string::npos) << problem->message;
  };
  refused("{}", 1, "neither");
  refused(R"({"text": 3})", 10, "not a text");
  refused(R"({"text": "\ud800"})", 10, "not a text");
  refused(R"({"text": "a", "text": "b"})", 15, "twice");
  refused(R"({"tokens": "a"})", 12, "not a list");
  refused(R"({"tokens": [1, 2.5]})", 12, "\"tokens\"[1] is not a token id");
  refused(R"({"tokens": [1, 8]})", 12, "\"tokens\"[1] is 8");
  refused(R"({"tokens": [-1]})", 12, "\"tokens\"[0] is -1");
  refused(R"({"tokens": [18446744073709551615]})", 12, "outside the model's vocabulary of 8");
  refused(R"({"text": "a"} x)", 15, "something follows");
  refused("{\"text\": \"\xff\"}", 11, "UTF-8");
}

TEST(ScoreLine, ResultsReadBackAsTheyWereComputed) {
  const SequenceScores scores{.logprobs = {-0.1F, -0.0, -1.0 / 3}, .likeliest = {}, .logits = {}};
  const ScoreLine line{.tokens = {1, 2, 3, 4}, .fields = R"("id": 7)"};
  const nlohmann::json wide = nlohmann::json::parse(write_score_line(line, scores, false));
  EXPECT_EQ(wide["id"], 7);
  EXPECT_EQ(wide["tokens"], (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(wide["logprobs"][2].get<double>(), -1.0 / 3);
  EXPECT_EQ(wide["count"], 3);
  EXPECT_EQ(wide["sum"].get<double>(), static_cast<double>(-0.1F) + -1.0 / 3);
  const std::string narrow = write_score_line(line, scores, true);
  EXPECT_NE(narrow.find("\"logprobs\": [-0.1, 0, -0.33333334]"), std::string::npos) << narrow;
  EXPECT_EQ(write_score_line({.tokens = {}, .fields = ""}, {}, true),
            R"({"tokens": [], "logprobs": [], "sum": 0, "count": 0})");
}

TEST(ScoreLine, BeginningOfSequenceNeedsAToken) {
  expect_error(ErrorKind::kConfig, "--add-bos", [] {
    (void)read_score_line(R"({"text": "a"})", kTokenizer, {.vocab_size = 8, .add_bos = true});
  });
}

}  // namespace
}  // namespace pentatron::inference
