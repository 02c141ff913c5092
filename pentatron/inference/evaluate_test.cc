// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/inference/known_model_test_support.h"
#include "pentatron/inference/wikitext_detokenizer.h"

namespace pentatron::inference {
namespace {

using test_support::known_model;
using test_support::LetterTokenizer;

double number(const EvaluationNumbers& numbers, const std::string& name) {
  for (const auto& [key, value] : numbers) {
    if (key == name) return value;
  }
  ADD_FAILURE() << "no " << name;
  return std::nan("");
}

class Evaluate : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) {
    write_file_atomically(folder_.path() / name, text);
    return (folder_.path() / name).string();
  }
  TempFolder folder_;
  LetterTokenizer tokenizer_;
};

// Words are what single spaces separate: two spaces make three words.
TEST_F(Evaluate, WikitextPerplexity) {
  LoadedModel model = known_model(3);
  const std::string one_word = file("wiki1", "abcd\n");
  DocumentScorer apart(model, {.stride = 3});
  expect_error(ErrorKind::kData, "1 words and 5 tokens",
               [&] { (void)evaluate_wikitext(one_word, apart, tokenizer_, true); });
  const std::string text = file("wiki2", "ab  c\n");  // tokens 0 1 7 7 2 7
  const EvaluationNumbers numbers = evaluate_wikitext(text, apart, tokenizer_, true);
  // b: 1/2; 7 after 1: 2/3 / 7; 7 after 7: 3/4 / 7; then position 0: 2 after 7: 1/2 / 7; 7 after 2
  // at position 1: 2/3 / 7.
  const double sum = -std::log(0.5) - std::log(2.0 / 21) - std::log(3.0 / 28) - std::log(1.0 / 14) -
                     std::log(2.0 / 21);
  EXPECT_NEAR(number(numbers, "loss"), sum / 5, 1e-12);
  EXPECT_NEAR(number(numbers, "perplexity"), std::exp(sum / 5), 1e-10);
  EXPECT_NEAR(number(numbers, "adjusted_perplexity"), std::exp(sum / 2), 1e-8);
  EXPECT_EQ(number(numbers, "tokens"), 6);
  EXPECT_EQ(number(numbers, "words"), 3);  // "ab", "", "c"
  DocumentScorer close(model, {.stride = 1});
  const double sum_close = -std::log(0.5) - std::log(2.0 / 21) - 3 * std::log(3.0 / 28);
  EXPECT_NEAR(number(evaluate_wikitext(text, close, tokenizer_, true), "loss"), sum_close / 5,
              1e-12);
}

TEST_F(Evaluate, ExponentsEndAtTwenty) {
  LoadedModel model = known_model(64);
  DocumentScorer scorer(model, {});
  // 30 tokens in two words: the adjusted loss is far over 20.
  const std::string path = file("wiki", std::string(15, 'b') + " " + std::string(14, 'b'));
  const EvaluationNumbers numbers = evaluate_wikitext(path, scorer, tokenizer_, true);
  EXPECT_NEAR(number(numbers, "adjusted_perplexity") / std::exp(20.0), 1, 1e-12);
  EXPECT_LT(number(numbers, "perplexity"), std::exp(19.0));
}

TEST_F(Evaluate, LambadaLastTokenAndLastWord) {
  LoadedModel model = known_model(8);
  DocumentScorer scorer(model, {});
  // The last letter follows: 1, 2, 4. The space and the whole last word: 1, 4 (white space around
  // the word is not the target's).
  const std::string path = file("lambada.jsonl",
                                "{\"text\": \"g ab\"}\n"
                                "{\"text\": \"f ab\", \"id\": 3}\n\n"
                                "{\"text\": \"g ac\"}\n"
                                "{\"text\": \"fg  a\"}\n");
  const EvaluationNumbers last = evaluate_lambada(path, false, scorer, tokenizer_, true);
  EXPECT_EQ(number(last, "examples"), 4);
  EXPECT_EQ(number(last, "correct"), 3);
  EXPECT_EQ(number(last, "accuracy"), 0.75);
  const EvaluationNumbers word = evaluate_lambada(path, true, scorer, tokenizer_, true);
  EXPECT_EQ(number(word, "correct"), 2);
  EXPECT_EQ(number(word, "accuracy"), 0.5);
}

TEST_F(Evaluate, BadLinesAreNamed) {
  LoadedModel model = known_model(4);
  DocumentScorer scorer(model, {});
  const auto refused = [&](const std::string& line, const std::string& part, bool strict = true) {
    const std::string path = file("bad.jsonl", "{\"text\": \"a b\"}\n" + line + "\n");
    expect_error(ErrorKind::kData, "bad.jsonl:2:" + part,
                 [&] { (void)evaluate_lambada(path, strict, scorer, tokenizer_, true); });
  };
  refused("{\"text\": \" abc \"}", "1: no word with a text before it");
  refused("{\"text\": \"\"}", "1: no word with a text before it");
  refused("{\"text\": \"a\"}", "1: fewer than two tokens", false);
  refused("{\"text\": 3}", "10: \"text\" is not a text");
  refused("{\"txt\": \"a b\"}", "1: has no \"text\"");
  refused("{\"text\": \"abcd ef\"}", "1: 7 tokens, 5 fit the model");
  refused("[]", "1: not one JSON object");
}

TEST_F(Evaluate, BitsPerByte) {
  LoadedModel model = known_model(8);
  DocumentScorer scorer(model, {});
  // Behind token 7: a 1/2, b 1/3; and of the second text a 1/2.
  const double bits = std::log2(2) + std::log2(3) + std::log2(2);
  const EvaluationNumbers lines = evaluate_bits_per_byte(
      file("texts.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"a\"}\n"), scorer, tokenizer_, true);
  EXPECT_NEAR(number(lines, "bits_per_byte"), bits / 3, 1e-12);
  EXPECT_NEAR(number(lines, "loss"), bits * std::log(2) / 3, 1e-12);
  EXPECT_EQ(number(lines, "documents"), 2);
  // A character of two bytes is two tokens here, of seven others' share each.
  const EvaluationNumbers whole =
      evaluate_bits_per_byte(file("text", "a\xc2\xb0"), scorer, tokenizer_, true);
  EXPECT_EQ(number(whole, "bytes"), 3);
  EXPECT_NEAR(number(whole, "bits_per_byte"),
              (std::log2(2) - std::log2(2.0 / 21) - std::log2(3.0 / 28)) / 3, 1e-12);
}

TEST(WikitextDetokenizer, Replacements) {
  const std::pair<const char*, const char*> cases[] = {
      {"the dogs ' tails", "the dogs' tails"},
      {"a /' 5/ b", "a /'[0-9]/ b"},
      {"twenty @-@ five , 1 @,@ 000 and 2 @.@ 5 .", "twenty-five, 1,000 and 2.5 ."},
      {"He said : no ; yes . What ! Why ? So , so", "He said: no; yes. What! Why? So, so"},
      {"( born 1900 ) [ sic ] { x }", "(born 1900) [sic] {x}"},
      {"a ( b ( c ) d )", "a (b ( c) d )"},
      {"( open", "( open"},
      {"\" Hello \" and \" more", "\"Hello\" and \" more"},
      {"' quoted ' text", "'quoted' text"},
      {"(\xc2\xa0 \n)", "()"},
      {" \n = = = Title = = = \n = = = = Sub = = = = \n", "\n=== Title ===\n==== Sub ====\n"},
      {"12 \xc2\xb0 C",
       "12\xc2\xb0"
       "C"},
      {"in N years", "in 1 years"},
      {"Valkyria 's", "Valkyria's"},
      {"a . . . b", "a. .. b"},
  };
  for (const auto& [from, to] : cases) EXPECT_EQ(detokenize_wikitext(from), to) << from;
}

}  // namespace
}  // namespace pentatron::inference
