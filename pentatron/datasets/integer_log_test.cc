// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/integer_log.h"

#include <gtest/gtest.h>

#include "pentatron/base/temp_folder.h"

namespace pentatron::datasets {
namespace {

std::vector<std::int32_t> all_of(const IntegerLog& log) {
  std::vector<std::int32_t> all;
  log.for_each([&](std::span<const std::int32_t> values) {
    all.insert(all.end(), values.begin(), values.end());
  });
  return all;
}

TEST(IntegerLog, ReadsBackWhatLeftTheMemory) {
  const TempFolder folder;
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{5}, IntegerLog::kInMemory, 2 * IntegerLog::kInMemory + 3}) {
    IntegerLog log(folder.path());
    std::vector<std::int32_t> expected;
    for (std::size_t i = 0; i < count; ++i) {
      expected.push_back(static_cast<std::int32_t>(i * 2654435761U));
      log.push_back(expected.back());
    }
    EXPECT_EQ(log.size(), static_cast<std::int64_t>(count));
    EXPECT_TRUE(all_of(log) == expected) << count;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(IntegerLog, GoesOnAfterTheValuesThatCount) {
  const TempFolder folder;
  {
    IntegerLog log(folder.path() / "log", 0);
    for (const int value : {1, 2, 3, 4}) log.push_back(value);
    log.sync();
  }
  IntegerLog log(folder.path() / "log", 2);
  log.push_back(9);
  EXPECT_EQ(log.size(), 3);
  EXPECT_EQ(all_of(log), (std::vector<std::int32_t>{1, 2, 9}));
}

}  // namespace
}  // namespace pentatron::datasets
