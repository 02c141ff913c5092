// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/places.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "pentatron/base/error.h"

namespace pentatron::comm {
namespace {

using Ranks = std::vector<std::int64_t>;
using Coordinates = std::map<std::string, std::int64_t>;

// The slow truth: ranks are handed out one by one in nested loops, the fastest axis innermost.
std::vector<Coordinates> enumerate(const std::vector<std::pair<std::string, std::int64_t>>& axes) {
  std::vector<Coordinates> all{{}};
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    std::vector<Coordinates> longer;
    for (const Coordinates& slower : all) {
      for (std::int64_t value = 0; value < axis->second; ++value) {
        longer.push_back(slower);
        longer.back()[axis->first] = value;
      }
    }
    all = std::move(longer);
  }
  return all;
}

// Group of a rank over the axes: all ranks that agree with it on every other axis.
std::map<Coordinates, Ranks> groups_over(const std::vector<Coordinates>& truth,
                                         const std::vector<std::string>& axes) {
  std::map<Coordinates, Ranks> groups;
  for (std::size_t rank = 0; rank < truth.size(); ++rank) {
    Coordinates rest = truth[rank];
    for (const std::string& axis : axes) rest.erase(axis);
    groups[rest].push_back(static_cast<std::int64_t>(rank));
  }
  return groups;
}

void compare(const RankGrid& grid, const std::vector<std::pair<std::string, std::int64_t>>& axes,
             std::size_t step) {
  const std::vector<Coordinates> truth = enumerate(axes);
  ASSERT_EQ(grid.world_size(), static_cast<std::int64_t>(truth.size()));
  for (std::size_t rank = 0; rank < truth.size(); rank += step) {
    for (const auto& [axis, value] : truth[rank]) {
      ASSERT_EQ(grid.coordinate(static_cast<std::int64_t>(rank), axis), value)
          << axis << " of rank " << rank << "\n"
          << grid.to_string();
    }
  }
  std::vector<std::vector<std::string>> sets;
  for (const auto& [axis, size] : axes) sets.push_back({axis});
  sets.push_back({axes[0].first, axes[3].first});
  sets.push_back({axes[1].first, axes[2].first});
  sets.push_back({axes[0].first, axes[1].first, axes[2].first});
  for (const std::vector<std::string>& set : sets) {
    const auto groups = groups_over(truth, set);
    for (std::size_t rank = 0; rank < truth.size(); rank += step) {
      Coordinates rest = truth[rank];
      for (const std::string& axis : set) rest.erase(axis);
      ASSERT_EQ(grid.group_of(static_cast<std::int64_t>(rank), set), groups.at(rest))
          << set.front() << " of rank " << rank << "\n"
          << grid.to_string();
    }
  }
}

void compare(const GridSizes& s, std::size_t step = 1) {
  const Grids grids = make_grids(s);
  const std::int64_t etp = s.expert_tensor == 0 ? s.tensor : s.expert_tensor;
  const std::int64_t dp = s.world / (s.tensor * s.context * s.pipeline);
  const std::int64_t edp = s.world / (etp * s.expert * s.pipeline);
  if (s.order == RankOrder::kPipelineLast) {
    compare(grids.dense, {{"tp", s.tensor}, {"cp", s.context}, {"dp", dp}, {"pp", s.pipeline}},
            step);
    compare(*grids.expert, {{"etp", etp}, {"ep", s.expert}, {"edp", edp}, {"pp", s.pipeline}},
            step);
  } else {
    compare(grids.dense, {{"tp", s.tensor}, {"cp", s.context}, {"pp", s.pipeline}, {"dp", dp}},
            step);
    compare(*grids.expert, {{"etp", etp}, {"ep", s.expert}, {"pp", s.pipeline}, {"edp", edp}},
            step);
  }
}

// Why make_grids() refuses these sizes; empty: it takes them.
std::string refusal(const GridSizes& s) {
  try {
    static_cast<void>(make_grids(s));
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return error.what();
  }
}

TEST(Places, BothGridsEqualTheSlowEnumerationInEverySmallWorld) {
  int accepted = 0;
  int refused = 0;
  const std::vector<std::int64_t> sizes{1, 2, 3, 4};
  for (const std::int64_t world : {1, 2, 4, 6, 8, 12, 16, 24, 32}) {
    for (const std::int64_t tp : sizes) {
      for (const std::int64_t cp : sizes) {
        for (const std::int64_t pp : sizes) {
          for (const std::int64_t ep : sizes) {
            for (const std::int64_t etp : {0, 1, 2, 3}) {
              for (const RankOrder order : {RankOrder::kPipelineLast, RankOrder::kDataLast}) {
                const GridSizes s{.world = world,
                                  .tensor = tp,
                                  .context = cp,
                                  .pipeline = pp,
                                  .expert = ep,
                                  .expert_tensor = etp,
                                  .order = order};
                // Megatron's rules, written down once more.
                const std::int64_t experts = (etp == 0 ? tp : etp) * ep * pp;
                const bool fits = world % (tp * cp * pp) == 0 && world % experts == 0 &&
                                  (order == RankOrder::kPipelineLast || pp == 1 ||
                                   world / (tp * cp * pp) == world / experts);
                ASSERT_EQ(refusal(s).empty(), fits) << refusal(s);
                ++(fits ? accepted : refused);
                if (!fits) continue;
                ASSERT_NO_FATAL_FAILURE(compare(s));
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 500);
}

TEST(Places, EqualTheSlowEnumerationUpTo100000Ranks) {
  compare({.world = 100'000,
           .tensor = 8,
           .context = 5,
           .pipeline = 10,
           .expert = 50,
           .expert_tensor = 2},
          9'973);
  compare({.world = 98'304,
           .tensor = 8,
           .context = 2,
           .pipeline = 16,
           .expert = 64,
           .expert_tensor = 1},
          9'973);
  compare({.world = 65'536,
           .tensor = 4,
           .context = 4,
           .pipeline = 8,
           .expert = 16,
           .expert_tensor = 1,
           .order = RankOrder::kDataLast},
          4'099);
}

TEST(Places, KnownGroupsOfFoldedExperts) {
  // 16 ranks: attention tp 4 x dp 2 x pp 2; experts ep 8 x pp 2 over the same ranks of a stage.
  const Grids grids =
      make_grids({.world = 16, .tensor = 4, .pipeline = 2, .expert = 8, .expert_tensor = 1});
  EXPECT_EQ(grids.dense.group_of(5, {"tp"}), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(grids.dense.group_of(5, {"dp"}), (Ranks{1, 5}));
  EXPECT_EQ(grids.with({"ep"}).group_of(5, {"ep"}), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(grids.with({"edp"}).group_of(5, {"edp"}), (Ranks{5}));
  EXPECT_EQ(grids.with({"pp"}).group_of(5, {"pp"}), (Ranks{5, 13}));
  // Other order: tp 2, pp 2, dp 4.
  const Grids data_last =
      make_grids({.world = 16, .tensor = 2, .pipeline = 2, .order = RankOrder::kDataLast});
  EXPECT_EQ(data_last.dense.group_of(5, {"pp"}), (Ranks{5, 7}));
  EXPECT_EQ(data_last.dense.group_of(5, {"dp"}), (Ranks{1, 5, 9, 13}));
}

TEST(Places, OrderOfTheOption) {
  config::ParallelConfig parallel{.world_size = 8,
                                  .tensor_model_parallel_size = 2,
                                  .pipeline_model_parallel_size = 2,
                                  .data_parallel_size = 2};
  EXPECT_EQ(make_grids(parallel).dense.group_of(1, {"pp"}), (Ranks{1, 5}));
  EXPECT_EQ(make_grids(parallel).dense.group_of(1, {"dp"}), (Ranks{1, 3}));
  parallel.use_tp_pp_dp_mapping = true;
  EXPECT_EQ(make_grids(parallel).dense.group_of(1, {"pp"}), (Ranks{1, 3}));
  EXPECT_EQ(make_grids(parallel).dense.group_of(1, {"dp"}), (Ranks{1, 5}));
}

TEST(Places, InstancesAndHierarchiesAreFactors) {
  const Grids grids = make_grids({.world = 96,
                                  .tensor = 2,
                                  .context = 4,
                                  .pipeline = 1,
                                  .expert = 4,
                                  .expert_tensor = 1,
                                  .data_instances = 3,
                                  .context_inner = 2});
  for (std::int64_t rank = 0; rank < 96; ++rank) {
    const std::int64_t cp = rank / 2 % 4;
    const std::int64_t dp = rank / 8;
    const Place at(grids, rank);
    EXPECT_EQ(at.coordinate("cp_inner"), cp % 2);
    EXPECT_EQ(at.coordinate("cp_outer"), cp / 2);
    EXPECT_EQ(at.coordinate("dp_inner"), dp % 4);
    EXPECT_EQ(at.coordinate("dp_outer"), dp / 4);
    EXPECT_EQ(at.coordinate("edp_outer"), rank / 4 / 8);
    EXPECT_EQ(at.coordinate("cp/2"), cp / 2);
  }
  // Every replica is in one shard group and one group of instances, which together are all.
  for (const GridKind kind : {GridKind::kDense, GridKind::kExpert}) {
    const RankGrid& grid = grids.with(replica_axes(kind));
    std::vector<std::string> both = shard_axes(kind);
    both.insert(both.end(), instance_axes(kind).begin(), instance_axes(kind).end());
    EXPECT_EQ(grid.group_of(17, both), grid.group_of(17, replica_axes(kind)));
    EXPECT_EQ(grid.group_of(17, instance_axes(kind)).size(), 3U);
  }
}

TEST(Places, RefusalsNameBothNumbersAndTheOption) {
  const auto has = [](const GridSizes& s, const std::vector<std::string>& texts) {
    const std::string message = refusal(s);
    EXPECT_FALSE(message.empty());
    for (const std::string& text : texts) {
      EXPECT_NE(message.find(text), std::string::npos) << text << "\n" << message;
    }
  };
  has({.world = 12, .tensor = 4, .context = 2},
      {"world of 12", "--tensor-model-parallel-size 4", "--context-parallel-size 2", "= 8"});
  has({.world = 12, .tensor = 2, .pipeline = 5},
      {"world of 12", "--pipeline-model-parallel-size 5"});
  has({.world = 12, .tensor = 2, .expert = 4},
      {"world of 12", "--expert-model-parallel-size 4", "--expert-tensor-parallel-size 2", "= 8"});
  has({.world = 12, .expert = 5}, {"world of 12", "--expert-model-parallel-size 5"});
  has({.world = 12, .tensor = 0}, {"--tensor-model-parallel-size", "not 0"});
  has({.world = 12, .expert_tensor = -1}, {"--expert-tensor-parallel-size", "not -1"});
  has({.world = 12, .context = 4, .context_inner = 3},
      {"--hierarchical-context-parallel-sizes 3", "4 ranks of cp", "--context-parallel-size"});
  has({.world = 12, .tensor = 2, .data_instances = 4},
      {"--num-distributed-optimizer-instances 4", "6 ranks of dp"});
  has({.world = 12, .expert = 4, .data_instances = 4},
      {"--num-distributed-optimizer-instances 4", "3 ranks of edp"});
  has({.world = 16, .pipeline = 2, .expert = 2, .order = RankOrder::kDataLast},
      {"--use-tp-pp-dp-mapping", "8 and 4", "--expert-model-parallel-size"});
  has({.world = 16, .tensor = std::int64_t{1} << 40, .context = std::int64_t{1} << 40},
      {"more than any world"});
}

TEST(Places, AreOneRanksCoordinates) {
  const Grids grids = make_grids({.world = 8, .tensor = 4, .expert = 2, .expert_tensor = 2});
  const Place at(grids, 6);
  EXPECT_EQ(at.size("tp"), 4);
  EXPECT_EQ(at.coordinate("tp"), 2);
  EXPECT_EQ(at.coordinate("tp/2"), 1);
  EXPECT_EQ(at.coordinate("etp"), 0);
  EXPECT_EQ(at.coordinate("ep"), 1);
  EXPECT_EQ(at.coordinate("edp"), 1);
  EXPECT_EQ(at.size("pp"), 1);
  EXPECT_TRUE(at.has("tp%2"));
  EXPECT_FALSE(at.has("tp%3"));
  EXPECT_FALSE(at.has("sp"));
  EXPECT_THROW(static_cast<void>(at.size("sp")), Error);
  EXPECT_THROW(static_cast<void>(at.size("tp%3")), Error);
  EXPECT_THROW(Place(grids, 8), Error);
  EXPECT_THROW(Place({{"tp", 2, 2}}), Error);
  EXPECT_THROW(Place({{"tp", 2, 0}, {"tp", 2, 0}}), Error);
  EXPECT_EQ(option_of("tp/2"), "--tensor-model-parallel-size");
  EXPECT_EQ(option_of("cp_inner"), "--context-parallel-size");
  EXPECT_EQ(option_of("ep"), "--expert-model-parallel-size");
}

TEST(Places, GridsOfTwoWorldsOrPipelinesAreNoGrids) {
  const RankGrid dense({{"tp", 2, {}}, {"dp", 2, {}}, {"pp", 2, {}}});
  EXPECT_THROW(Grids(dense, RankGrid({{"ep", 2, {}}, {"edp", 2, {}}})), Error);
  EXPECT_THROW(Grids(dense, RankGrid({{"pp", 2, {}}, {"ep", 4, {}}})), Error);
  const Grids both(dense, RankGrid({{"ep", 4, {}}, {"pp", 2, {}}}));
  EXPECT_EQ(&both.with({"pp"}), &both.dense);
  EXPECT_EQ(&both.with({"pp", "ep"}), &*both.expert);
  EXPECT_THROW(static_cast<void>(both.with({"tp", "ep"})), Error);
  EXPECT_TRUE(both.has("ep%2"));
  EXPECT_FALSE(both.has("edp"));
}

// What training hands to comm: the resolved configuration.
TEST(Places, OfAConfiguration) {
  config::ParallelConfig parallel;
  parallel.world_size = 16;
  parallel.tensor_model_parallel_size = 4;
  parallel.data_parallel_size = 2;
  parallel.pipeline_model_parallel_size = 2;
  const Grids grids = make_grids(parallel);
  EXPECT_EQ(grids.dense.group_of(1, {"dp"}), (Ranks{1, 5}));
  EXPECT_EQ(grids.dense.group_of(1, {"pp"}), (Ranks{1, 9}));
  parallel.data_parallel_size = 4;
  EXPECT_THROW(static_cast<void>(make_grids(parallel)), Error);
}

}  // namespace
}  // namespace pentatron::comm
