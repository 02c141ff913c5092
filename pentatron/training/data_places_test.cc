// SPDX-License-Identifier: Apache-2.0
// Which coordinate reads which sample: only dp. Ranks of other coordinates read what their peers
// do.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "pentatron/comm/places.h"
#include "pentatron/datasets/global_batch_plan.h"

namespace pentatron::training {
namespace {

struct Case {
  const char* name;
  comm::GridSizes sizes;
};

class DataPlaces : public testing::TestWithParam<Case> {};

TEST_P(DataPlaces, EverySampleIsReadByOneDataRankAndAllItsPeers) {
  const comm::GridSizes& sizes = GetParam().sizes;
  const comm::Grids grids = comm::make_grids(sizes);
  const std::int64_t data_ranks = grids.dense.size("dp");
  const datasets::GlobalBatchPlan plan(3 * 2 * data_ranks, 2, data_ranks);
  std::map<std::int64_t, std::set<std::int64_t>> readers;  // of each sample of a step
  for (std::int64_t rank = 0; rank < sizes.world; ++rank) {
    const comm::Place place(grids, rank);
    for (const auto& micro_batch : plan.micro_batches(0, place.coordinate("dp"))) {
      for (const std::int64_t id : micro_batch) readers[id].insert(rank);
    }
  }
  ASSERT_EQ(readers.size(), static_cast<std::size_t>(plan.global_batch_size()));
  for (const auto& [id, ranks] : readers) {
    const auto peers = grids.dense.group_of(*ranks.begin(), {"tp", "cp", "pp"});
    EXPECT_EQ(ranks, std::set<std::int64_t>(peers.begin(), peers.end())) << "sample " << id;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Grids, DataPlaces,
    testing::Values(
        Case{"alone", {}}, Case{"context", {.world = 4, .context = 4}},
        Case{"data_and_context", {.world = 12, .context = 2}},
        Case{"all", {.world = 48, .tensor = 2, .context = 2, .pipeline = 3}},
        Case{"experts",
             {.world = 32,
              .tensor = 2,
              .context = 2,
              .pipeline = 2,
              .expert = 8,
              .expert_tensor = 1}},
        Case{"data_last",
             {.world = 16, .tensor = 2, .pipeline = 2, .order = comm::RankOrder::kDataLast}},
        Case{"hierarchical", {.world = 32, .context = 4, .data_instances = 2, .context_inner = 2}}),
    [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pentatron::training
