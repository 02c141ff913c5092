// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/split.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

TEST(Split, ReadsMegatronsDefault) {
  const SplitMatrix matrix = parse_split("969, 30, 1");
  ASSERT_TRUE(matrix.ranges[0] && matrix.ranges[1] && matrix.ranges[2]);
  EXPECT_DOUBLE_EQ(matrix.ranges[0]->second, 0.969);
  EXPECT_DOUBLE_EQ(matrix.ranges[1]->second, 0.999);
  EXPECT_EQ(split_range(matrix, DataSplit::kTrain, 1000), std::pair(0L, 969L));
  EXPECT_EQ(split_range(matrix, DataSplit::kValid, 1000), std::pair(969L, 999L));
  EXPECT_EQ(split_range(matrix, DataSplit::kTest, 1000), std::pair(999L, 1000L));
}

TEST(Split, MissingPartsAreEmpty) {
  const SplitMatrix matrix = parse_split("99,1");
  EXPECT_TRUE(matrix.ranges[0] && matrix.ranges[1]);
  EXPECT_FALSE(matrix.ranges[2]);
  EXPECT_EQ(split_range(matrix, DataSplit::kTest, 1000), std::pair(0L, 0L));
}

TEST(Split, RoundsHalvesToEven) {
  // 0.5 * 5 = 2.5 and 0.5 * 7 = 3.5: Python's round() gives 2 and 4.
  const SplitMatrix matrix = parse_split("1,1");
  EXPECT_EQ(split_range(matrix, DataSplit::kTrain, 5).second, 2);
  EXPECT_EQ(split_range(matrix, DataSplit::kTrain, 7).second, 4);
}

TEST(Split, PartsTileEveryCorpus) {
  for (const char* text : {"969, 30, 1", "8,1,1", "0.3,0.3,0.4", "1,0,2", "0,1,1", "100"}) {
    const SplitMatrix matrix = parse_split(text);
    for (std::int64_t n = 0; n < 300; ++n) {
      std::int64_t at = 0;
      for (const DataSplit split : {DataSplit::kTrain, DataSplit::kValid, DataSplit::kTest}) {
        if (!matrix.ranges[static_cast<std::size_t>(split)]) continue;
        const auto [begin, end] = split_range(matrix, split, n);
        EXPECT_EQ(begin, at) << text << " " << n;
        EXPECT_GE(end, begin);
        at = end;
      }
      EXPECT_EQ(at, n) << text;
    }
  }
}

TEST(Cases, MegatronLM_7512) {
  for (const char* text : {"-1,1,0", "90,abc5,5", "0,0,0", "1,1,1,1", "nan,1,1", "", " ", "1,,1",
                           "1.2.3", ".", "1e3,1,1", "inf,1", "+1,1", "90,5,5,", "1;1"}) {
    try {
      (void)parse_split(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find("--split"), std::string::npos) << error.what();
    }
  }
  const SplitMatrix all = parse_split("100");
  EXPECT_EQ(split_range(all, DataSplit::kTrain, 7), std::pair(0L, 7L));
  EXPECT_FALSE(all.ranges[1] || all.ranges[2]);
  EXPECT_EQ(parse_split("98 1 1").ranges, parse_split("98,1,1").ranges);
}

TEST(SamplesAsked, FollowsTheFormula) {
  const SampleCounts counts =
      samples_asked({.train_iters = 100, .eval_interval = 30, .eval_iters = 5}, 8);
  EXPECT_EQ(counts.train, 800);
  EXPECT_EQ(counts.valid, (100 / 30 + 1) * 5 * 8);
  EXPECT_EQ(counts.test, 40);
}

TEST(SamplesAsked, NoEvaluationAsksForNothing) {
  const SampleCounts counts = samples_asked({.train_iters = 100, .eval_interval = 10}, 8);
  EXPECT_EQ(counts.valid, 0);
  EXPECT_EQ(counts.test, 0);
  EXPECT_EQ(samples_asked({.train_iters = 10, .eval_iters = 2}, 4).valid, 8);
}

// Evaluations before --start-eval-at-iter need no samples (N8).
TEST(SamplesAsked, LateEvaluationsAskForFewer) {
  RunLength run{.train_iters = 20, .eval_interval = 2, .eval_iters = 2};
  EXPECT_EQ(samples_asked(run, 8).valid, 11 * 16);
  run.start_eval_at_iter = 15;
  EXPECT_EQ(samples_asked(run, 8).valid, (11 - 7) * 16);
  run.start_eval_at_iter = 40;
  EXPECT_EQ(samples_asked(run, 8).valid, 16) << "the one after training";
}

TEST(SamplesAsked, RefusesOverflowAndNegatives) {
  EXPECT_THROW((void)samples_asked({.train_iters = std::numeric_limits<std::int64_t>::max(),
                                    .eval_interval = 1,
                                    .eval_iters = 1},
                                   2),
               Error);
  EXPECT_THROW((void)samples_asked({.train_iters = 10, .eval_interval = 1, .eval_iters = -1}, 2),
               Error);
  EXPECT_THROW((void)samples_asked({.train_iters = 10, .eval_interval = 1, .eval_iters = 1}, 0),
               Error);
}

}  // namespace
}  // namespace pentatron::datasets
