// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sentence_splitter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace pentatron::datasets {
namespace {

using Pieces = std::vector<std::string_view>;

TEST(SentenceSplitter, EndsOfSentences) {
  EXPECT_EQ(split_sentences("It rains. Does it? Yes! Good", false),
            (Pieces{"It rains.", "Does it?", "Yes!", "Good"}));
  EXPECT_EQ(split_sentences("He said \"Stop.\" Then he left. (He did!) So.", false),
            (Pieces{"He said \"Stop.\"", "Then he left.", "(He did!)", "So."}));
  EXPECT_EQ(split_sentences("Really?! Sure.\xe2\x80\x9d Fine.", false),
            (Pieces{"Really?!", "Sure.\xe2\x80\x9d", "Fine."}));
  EXPECT_EQ(split_sentences("One line.\nAnother\nline. End.", false),
            (Pieces{"One line.", "Another\nline.", "End."}));
  EXPECT_EQ(split_sentences("Version 3.14 of a.b.c is out.", false),
            Pieces{"Version 3.14 of a.b.c is out."});
}

TEST(SentenceSplitter, PeriodsThatEndNothing) {
  EXPECT_EQ(split_sentences("Dr. Smith met Mrs. Jones. They spoke.", false),
            (Pieces{"Dr. Smith met Mrs. Jones.", "They spoke."}));
  EXPECT_EQ(split_sentences("J. R. R. Tolkien wrote it. It sold.", false),
            (Pieces{"J. R. R. Tolkien wrote it.", "It sold."}));
  EXPECT_EQ(
      split_sentences("Use tools, e.g. Hammers, saws, etc. Nails help. See p. 5 there.", false),
      (Pieces{"Use tools, e.g. Hammers, saws, etc. Nails help.", "See p. 5 there."}));
  EXPECT_EQ(
      split_sentences("He lives in the U.S. Senate staff know. He moved to the U.S. The end.",
                      false),
      (Pieces{"He lives in the U.S. Senate staff know.", "He moved to the U.S.", "The end."}));
  EXPECT_EQ(split_sentences("Wait... what? Oh... Never mind.", false),
            (Pieces{"Wait... what?", "Oh...", "Never mind."}));
  EXPECT_EQ(split_sentences("The 3. of May. It was the 4. And so on.", false),
            (Pieces{"The 3. of May.", "It was the 4.", "And so on."}));
}

TEST(SentenceSplitter, WhiteSpace) {
  EXPECT_TRUE(split_sentences("", false).empty());
  EXPECT_TRUE(split_sentences(" \n\t\xc2\xa0", false).empty());
  EXPECT_TRUE(split_sentences(" \n", true).empty());
  EXPECT_EQ(split_sentences("  A b.  \n\n C d.\n", false), (Pieces{"A b.", "C d."}));
  // Kept: the pieces laid end to end are the text without the space at its end.
  EXPECT_EQ(split_sentences("  A b.  \n\n C d.\n", true), (Pieces{"  A b.  \n\n ", "C d."}));
}

TEST(SentenceSplitter, KeepsEveryByte) {
  const std::string text =
      "Prof. \xc3\x89mile came (late). \"Why?\" he asked...  No one knew!\r\n\r\nAt 5 p.m. The "
      "bell "
      "rang; \xe4\xbd\xa0\xe5\xa5\xbd. \xff broken \x80. End.";
  std::string joined;
  for (const std::string_view piece : split_sentences(text, true)) joined += piece;
  EXPECT_EQ(joined, text);
}

TEST(SentenceSplitter, LinearOnHostileText) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string part : {".", "!", ". ", "a.", "\"", ". \"", "\xff", " "}) {
    std::string text;
    while (text.size() < 200'000) text += part;
    (void)split_sentences(text, false);
    (void)split_sentences(text + " a", true);
  }
  // Far above a linear pass, far below a quadratic one.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace pentatron::datasets
