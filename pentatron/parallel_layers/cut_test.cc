// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/cut.h"

#include <gtest/gtest.h>

#include <set>

#include "pentatron/base/error.h"

namespace pentatron::parallel_layers {
namespace {

// The slow truth: deal units to ranks as one deals cards, one run of neighbours after another.
std::vector<std::set<std::int64_t>> dealt(std::int64_t units, std::int64_t size) {
  std::vector<std::set<std::int64_t>> held(static_cast<std::size_t>(size));
  const std::int64_t deals = std::max(units, size);
  for (std::int64_t deal = 0; deal < deals; ++deal) {
    held[static_cast<std::size_t>(deal * size / deals)].insert(deal * units / deals);
  }
  return held;
}

// Every rank of the axis "ax" inside a world that has neighbours on both sides of it.
void compare(const Cut& cut, std::int64_t size) {
  const comm::RankGrid grid({{"fast", 3, {}}, {cut.axis, size, {}}, {"slow", 2, {}}});
  const auto truth = dealt(cut.units, size);
  std::vector<Share> shares;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    shares.push_back(share_of(cut, comm::Place(grid, rank), "w"));
    std::set<std::int64_t> held;
    for (std::int64_t i = 0; i < shares.back().size; ++i) held.insert(shares.back().begin + i);
    const auto at = static_cast<std::size_t>(grid.coordinate(rank, cut.axis));
    ASSERT_EQ(held, truth[at]) << cut.units << " units, place " << at << " of " << size;
  }
  const auto members = [&](std::int64_t rank, const std::string& axis) {
    return axis.empty() ? std::vector<std::int64_t>{rank} : grid.group_of(rank, {axis});
  };
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    const Share& mine = shares[static_cast<std::size_t>(rank)];
    // Over split_axis: all units, each once. Over replicate_axis: the same, numbered from 0.
    std::multiset<std::int64_t> all;
    for (const std::int64_t other : members(rank, mine.split_axis)) {
      const Share& share = shares[static_cast<std::size_t>(other)];
      for (std::int64_t i = 0; i < share.size; ++i) all.insert(share.begin + i);
      ASSERT_EQ(share.replica, mine.replica);
    }
    ASSERT_EQ(all.size(), static_cast<std::size_t>(cut.units));
    ASSERT_EQ(std::set<std::int64_t>(all.begin(), all.end()).size(), all.size());
    std::int64_t replica = 0;
    for (const std::int64_t other : members(rank, mine.replicate_axis)) {
      const Share& share = shares[static_cast<std::size_t>(other)];
      ASSERT_EQ(share.begin, mine.begin);
      ASSERT_EQ(share.replica, replica++);
    }
    ASSERT_EQ(members(rank, mine.split_axis).size() * members(rank, mine.replicate_axis).size(),
              static_cast<std::size_t>(size));
  }
}

TEST(Cut, EqualsTheSlowDealForAllUnitsAndSizes) {
  for (std::int64_t size = 1; size <= 16; ++size) {
    for (std::int64_t units = 1; units <= 48; ++units) {
      const Cut cut{.axis = "ax", .units = units, .option = "--units", .fewer = FewerUnits::kCopy};
      if (units % size == 0 || size % units == 0) {
        ASSERT_NO_FATAL_FAILURE(compare(cut, size));
      } else {
        const comm::Place place({{"ax", size, size - 1}});
        EXPECT_THROW(static_cast<void>(share_of(cut, place, "w")), Error) << units << " " << size;
      }
    }
  }
}

TEST(Cut, KeyValueHeadsBelowEqualToAndAboveTheRanks) {
  const Cut heads{
      .axis = "tp", .units = 4, .option = "--num-query-groups", .fewer = FewerUnits::kCopy};
  const Share above = share_of(heads, comm::Place({{"tp", 2, 1}}), "k");
  EXPECT_EQ(above.begin, 2);
  EXPECT_EQ(above.size, 2);
  EXPECT_EQ(above.split_axis, "tp");
  EXPECT_EQ(above.replicate_axis, "");
  const Share equal = share_of(heads, comm::Place({{"tp", 4, 3}}), "k");
  EXPECT_EQ(equal.begin, 3);
  EXPECT_EQ(equal.size, 1);
  EXPECT_EQ(equal.split_axis, "tp");
  const Share below = share_of(heads, comm::Place({{"tp", 8, 5}}), "k");
  EXPECT_EQ(below.begin, 2);
  EXPECT_EQ(below.size, 1);
  EXPECT_EQ(below.split_axis, "tp/2");
  EXPECT_EQ(below.replicate_axis, "tp%2");
  EXPECT_EQ(below.replica, 1);
}

TEST(Cut, MambaGroupsAreCopiedAsKeyValueHeadsAre) {
  const Cut groups{
      .axis = "tp", .units = 1, .option = "--mamba-num-groups", .fewer = FewerUnits::kCopy};
  const Share one = share_of(groups, comm::Place({{"tp", 4, 2}}), "B");
  EXPECT_EQ(one.begin, 0);
  EXPECT_EQ(one.split_axis, "");
  EXPECT_EQ(one.replicate_axis, "tp");
  EXPECT_EQ(one.replica, 2);
}

TEST(Cut, ExpertsStandOnceOnTheExpertGrid) {
  const comm::Grids grids =
      comm::make_grids({.world = 16, .tensor = 4, .pipeline = 2, .expert = 4, .expert_tensor = 2});
  const Cut experts{.axis = "ep", .units = 12, .option = "--num-experts"};
  std::vector<int> holders(12, 0);
  for (std::int64_t rank = 0; rank < 16; ++rank) {
    const Share share = share_of(experts, comm::Place(grids, rank), "experts");
    EXPECT_EQ(share.size, 3);
    for (std::int64_t i = 0; i < 3; ++i) ++holders[static_cast<std::size_t>(share.begin + i)];
  }
  // Each on its etp ranks and stages: 2 x 2.
  EXPECT_EQ(holders, std::vector<int>(12, 4));
}

TEST(Cut, RefusalsNameBothNumbersAndOptions) {
  const auto message = [](const Cut& cut, std::int64_t size) -> std::string {
    try {
      static_cast<void>(share_of(cut, comm::Place({{cut.axis, size, 0}}), "the.weight"));
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
  };
  EXPECT_EQ(message({.axis = "ep", .units = 6, .option = "--num-experts"}, 4),
            "the.weight: --num-experts 6 does not divide by --expert-model-parallel-size 4; change "
            "one of the two");
  // Fewer units than ranks are no reason to copy what each rank must have for itself.
  EXPECT_NE(message({.axis = "tp", .units = 2, .option = "--num-attention-heads"}, 4), "");
  EXPECT_EQ(
      message(
          {.axis = "tp", .units = 6, .option = "--num-query-groups", .fewer = FewerUnits::kCopy},
          4),
      "the.weight: --num-query-groups 6 must be a multiple or a divisor of "
      "--tensor-model-parallel-size 4; change one of the two");
  EXPECT_THROW(static_cast<void>(share_of({.axis = "tp"}, comm::Place({{"tp", 2, 0}}), "w")),
               Error);
}

}  // namespace
}  // namespace pentatron::parallel_layers
