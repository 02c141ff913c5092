// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/rank_errors.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace pentatron::comm {
namespace {

// As a rank of `launcher` speaks.
bool tell(const RankErrors& launcher, int rank, const std::string& text,
          const std::string& label = "") {
  ::setenv(RankErrors::kVariable, launcher.name().c_str(), 1);
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  const bool told = tell_launcher(true, label, text);
  ::unsetenv("RANK");
  ::unsetenv(RankErrors::kVariable);
  return told;
}

std::string printed(RankErrors& launcher) {
  testing::internal::CaptureStderr();
  launcher.print();
  return testing::internal::GetCapturedStderr();
}

TEST(RankErrors, EqualTextsAreOneAndRepetitionsNone) {
  RankErrors launcher(4);
  ASSERT_TRUE(tell(launcher, 2, "a bad file"));
  ASSERT_TRUE(tell(launcher, 0, "a bad file", "rank 0 (dp 0)"));
  ASSERT_TRUE(tell(launcher, 3, "group 'world', barrier #0: rank 2 failed: a bad file"));
  ASSERT_TRUE(tell(launcher, 1, "another matter\nin two lines", "rank 1 (dp 1)"));
  launcher.collect();
  EXPECT_TRUE(launcher.has_word_of(3));
  EXPECT_FALSE(launcher.all_alike(4));
  EXPECT_EQ(printed(launcher),
            "error: [ranks 0 and 2] a bad file\n"
            "error: [rank 1 (dp 1)] another matter\nin two lines\n");
  // One that comes late adds nothing; what a rank says a second time is another matter.
  ASSERT_TRUE(tell(launcher, 5, "a bad file"));
  launcher.collect();
  EXPECT_EQ(printed(launcher), "");
  ASSERT_TRUE(tell(launcher, 0, "a bad file"));
  launcher.collect();
  EXPECT_EQ(printed(launcher), "error: [rank 0] a bad file\n");
}

TEST(RankErrors, WithoutALauncherRanksSpeakThemselves) {
  std::string name;
  {
    RankErrors launcher(1);
    name = launcher.name();
    ASSERT_TRUE(tell(launcher, 0, "alone"));
    launcher.collect();
    EXPECT_TRUE(launcher.all_alike(1));
    EXPECT_EQ(printed(launcher), "error: alone\n");
  }
  ::setenv("RANK", "0", 1);
  EXPECT_FALSE(tell_launcher(true, "", "no variable"));
  ::setenv(RankErrors::kVariable, name.c_str(), 1);
  EXPECT_FALSE(tell_launcher(true, "", "the launcher is gone"));
  ::unsetenv("RANK");
  EXPECT_FALSE(tell_launcher(true, "", "no rank"));
  ::unsetenv(RankErrors::kVariable);
}

TEST(RankErrors, MessagesAndNames) {
  const LastWord word{.rank = 7, .is_error = false, .label = "rank 7 (tp 1)", .text = "a\n\nb"};
  const auto back = unpacked(packed(word));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->rank, 7);
  EXPECT_FALSE(back->is_error);
  EXPECT_EQ(back->label, word.label);
  EXPECT_EQ(back->text, word.text);
  for (const char* none :
       {"", "x", "-1\nerror\n\nt", "1\nother\n\nt", "1", "99999999999\nerror\n\nt"}) {
    EXPECT_FALSE(unpacked(none).has_value()) << none;
  }
  EXPECT_LT(packed({.text = std::string(1 << 20, 'x')}).size(), 70'000U);
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({2, 0}), "ranks 0 and 2");
  EXPECT_EQ(ranks_text({0, 1}), "ranks 0 and 1");
  EXPECT_EQ(ranks_text({5, 0, 2, 1, 7, 8}), "ranks 0 to 2, 5, 7 and 8");
}

}  // namespace
}  // namespace pentatron::comm
