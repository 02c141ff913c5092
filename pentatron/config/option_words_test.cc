// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_words.h"

#include <gtest/gtest.h>

namespace pentatron::config {
namespace {

using Words = std::vector<std::string>;

TEST(OptionWords, OptionsAndWhatStandsBetween) {
  const Words line = {"first", "--lr=1=2", "--empty=", "--sizes", "1", "-2.5", "--on", "-h", "--"};
  OptionWords words(line, OptionWords::Values::kNumbers);
  EXPECT_FALSE(words.take_option());
  EXPECT_EQ(words.take(), "first");
  const std::optional<OptionWord> rate = words.take_option();
  ASSERT_TRUE(rate);
  EXPECT_EQ(rate->name, "--lr");
  EXPECT_EQ(rate->value, "1=2");
  EXPECT_EQ(words.take_option()->value, "");
  EXPECT_EQ(words.take_option()->value, std::nullopt);
  EXPECT_EQ(words.take_values(/*many=*/true), (Words{"1", "-2.5"}));
  EXPECT_EQ(words.take_option()->name, "--on");
  // Neither a number nor an option's name.
  EXPECT_TRUE(words.take_values(/*many=*/true).empty());
  EXPECT_FALSE(words.take_option());
  EXPECT_EQ(words.take(), "-h");
  EXPECT_EQ(words.take(), "--");
  EXPECT_TRUE(words.done());
  EXPECT_FALSE(words.take_option());
}

TEST(OptionWords, TextsWithDashes) {
  const Words line = {"--prompt", "-- hi",   "--prompt", "-x",
                      "--prompt", "--a b=c", "--prompt", "--x=a b"};
  const auto values = [&](OptionWords::Values kind) {
    std::vector<Words> all;
    for (OptionWords words(line, kind); !words.done();) {
      if (words.take_option()) {
        all.push_back(words.take_values(/*many=*/false));
      } else {
        words.take();
      }
    }
    return all;
  };
  EXPECT_EQ(values(OptionWords::Values::kTexts),
            (std::vector<Words>{{"-- hi"}, {"-x"}, {"--a b=c"}, {}, {}}));
  EXPECT_EQ(values(OptionWords::Values::kNumbers), (std::vector<Words>{{}, {}, {}, {}, {}}));
}

}  // namespace
}  // namespace pentatron::config
