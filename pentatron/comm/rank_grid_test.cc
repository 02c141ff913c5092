// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/rank_grid.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "pentatron/base/error.h"

namespace pentatron::comm {
namespace {

using Ranks = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

// The slow truth: coordinates of every rank on every axis and factor, found by counting up like an
// odometer, without a stride.
struct Enumeration {
  std::vector<std::map<std::string, std::int64_t>> coordinates;

  explicit Enumeration(const std::vector<Axis>& axes) {
    struct Wheel {
      std::string axis;
      std::string name;
      std::int64_t size;
      std::int64_t value = 0;
    };
    std::vector<Wheel> wheels;  // fastest first
    for (const Axis& axis : axes) {
      std::vector<AxisFactor> factors = axis.factors;
      if (factors.empty()) factors = {{axis.name, axis.size}};
      for (std::size_t i = factors.size(); i-- > 0;) {
        wheels.push_back({axis.name, factors[i].name, factors[i].size});
      }
    }
    while (true) {
      std::map<std::string, std::int64_t> at;
      for (const Wheel& wheel : wheels) at[wheel.name] = wheel.value;
      for (const Axis& axis : axes) {
        std::int64_t value = 0;  // slowest factor first: the axis value grows like a number
        for (const AxisFactor& factor : axis.factors) {
          value = value * factor.size + at[factor.name];
        }
        if (!axis.factors.empty()) at[axis.name] = value;
      }
      coordinates.push_back(at);
      std::size_t turn = 0;
      while (turn < wheels.size() && ++wheels[turn].value == wheels[turn].size) {
        wheels[turn++].value = 0;
      }
      if (turn == wheels.size()) return;
    }
  }

  // Ranks whose finest coordinates, those not covered by `axes`, equal those of `rank`.
  [[nodiscard]] Ranks group_of(std::size_t rank, const std::vector<Axis>& axes,
                               const Names& chosen) const {
    const std::set<std::string> names(chosen.begin(), chosen.end());
    Names fixed;
    for (const Axis& axis : axes) {
      if (names.count(axis.name) > 0) continue;
      if (axis.factors.empty()) fixed.push_back(axis.name);
      for (const AxisFactor& factor : axis.factors) {
        if (names.count(factor.name) == 0) fixed.push_back(factor.name);
      }
    }
    Ranks members;
    for (std::size_t other = 0; other < coordinates.size(); ++other) {
      bool same = true;
      for (const std::string& name : fixed) {
        same = same && coordinates[other].at(name) == coordinates[rank].at(name);
      }
      if (same) members.push_back(static_cast<std::int64_t>(other));
    }
    return members;
  }
};

void compare(const std::vector<Axis>& axes, const std::vector<Names>& sets,
             std::size_t group_samples) {
  const RankGrid grid(axes);
  const Enumeration truth(axes);
  ASSERT_EQ(grid.world_size(), static_cast<std::int64_t>(truth.coordinates.size()));
  const std::size_t world = truth.coordinates.size();
  // Every coordinate in small worlds, a sample with a step prime to all sizes in large ones.
  const std::size_t step = world > 5000 ? 37 : 1;
  for (std::size_t rank = 0; rank < world; rank += step) {
    for (const auto& [name, value] : truth.coordinates[rank]) {
      ASSERT_EQ(grid.coordinate(static_cast<std::int64_t>(rank), name), value)
          << name << " of rank " << rank;
    }
  }
  const std::size_t group_step = std::max<std::size_t>(1, world / group_samples);
  for (const Names& names : sets) {
    for (std::size_t rank = 0; rank < world; rank += group_step) {
      ASSERT_EQ(grid.group_of(static_cast<std::int64_t>(rank), names),
                truth.group_of(rank, axes, names))
          << "rank " << rank << ", first axis of the set " << names.front();
    }
    // The groups are a partition in order of their first ranks.
    std::vector<int> times(world, 0);
    std::int64_t previous = -1;
    for (const Ranks& group : grid.groups(names)) {
      ASSERT_GT(group.front(), previous);
      previous = group.front();
      for (std::int64_t member : group) ++times[static_cast<std::size_t>(member)];
    }
    ASSERT_TRUE(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
  }
}

const std::vector<Axis> kFactored = {{"tp", 4, {{"tp_kv", 2}, {"tp_rep", 2}}},
                                     {"cp", 3, {}},
                                     {"ep", 1, {}},
                                     {"dp", 12, {{"outer", 3}, {"middle", 2}, {"inner", 2}}},
                                     {"pp", 2, {}}};

TEST(RankGrid, EqualsSlowEnumerationInSmallWorlds) {
  const std::vector<Names> sets = {{"tp"},
                                   {"dp"},
                                   {"tp_kv"},
                                   {"tp_rep"},
                                   {"outer"},
                                   {"inner"},
                                   {"tp", "pp"},
                                   {"dp", "cp"},
                                   {"inner", "tp_kv"},
                                   {"outer", "pp"},
                                   {"tp", "tp_kv"},
                                   {"middle", "ep"},
                                   {"ep"},
                                   {"outer", "inner", "tp_rep", "cp"}};
  compare(kFactored, sets, 300);
  std::vector<Axis> reversed(kFactored.rbegin(), kFactored.rend());
  compare(reversed, sets, 300);
  std::vector<Axis> rotated = kFactored;
  std::rotate(rotated.begin(), rotated.begin() + 2, rotated.end());
  compare(rotated, sets, 300);
  compare({{"dp", 1, {}}}, {{"dp"}}, 1);
}

// A computed part of an axis, and what is left of the axis without it.
struct Part {
  std::string axis;
  std::int64_t stride;
  std::int64_t size;

  [[nodiscard]] std::string name() const {
    return axis + "/" + std::to_string(stride) + "%" + std::to_string(size);
  }
  [[nodiscard]] std::int64_t of(std::int64_t coordinate) const {
    return coordinate / stride % size;
  }
  [[nodiscard]] std::int64_t without(std::int64_t coordinate) const {
    return coordinate - of(coordinate) * stride;
  }
};

void compare_parts(const std::vector<Axis>& axes, const std::vector<Part>& parts,
                   std::size_t rank_step) {
  const RankGrid grid(axes);
  const Enumeration truth(axes);
  Names names;
  for (const Part& part : parts) {
    names.push_back(part.name());
    ASSERT_EQ(grid.size(part.name()), part.size);
  }
  const auto rest = [&](std::size_t rank) {
    std::map<std::string, std::int64_t> at = truth.coordinates[rank];
    for (const Part& part : parts) at[part.axis] = part.without(at[part.axis]);
    std::vector<std::int64_t> left;
    for (const Axis& axis : axes) left.push_back(at[axis.name]);
    return left;
  };
  std::map<std::vector<std::int64_t>, Ranks> members;
  for (std::size_t rank = 0; rank < truth.coordinates.size(); ++rank) {
    members[rest(rank)].push_back(static_cast<std::int64_t>(rank));
  }
  for (std::size_t rank = 0; rank < truth.coordinates.size(); rank += rank_step) {
    const auto at = static_cast<std::int64_t>(rank);
    ASSERT_EQ(grid.group_of(at, names), members.at(rest(rank))) << rank;
    for (const Part& part : parts) {
      const std::int64_t value = part.of(truth.coordinates[rank].at(part.axis));
      ASSERT_EQ(grid.coordinate(at, part.name()), value) << part.name() << " of rank " << rank;
      ASSERT_EQ(grid.with_coordinate(at, part.name(), value), at);
    }
  }
}

TEST(RankGrid, ComputedPartsOfAxesEqualTheSlowEnumeration) {
  const std::vector<Axis> axes = {{"tp", 12, {}}, {"cp", 6, {}}, {"dp", 4, {}}, {"pp", 2, {}}};
  for (const std::int64_t stride : {1, 2, 3, 4, 6, 12}) {
    for (std::int64_t size = 1; size <= 12 / stride; ++size) {
      if (12 / stride % size != 0) continue;
      compare_parts(axes, {{"tp", stride, size}}, 1);
      compare_parts(axes, {{"tp", stride, size}, {"cp", 2, 3}, {"dp", 1, 2}}, 1);
    }
  }
  // Two digits of one axis, apart.
  compare_parts(axes, {{"tp", 1, 2}, {"tp", 6, 2}}, 1);
  compare_parts({{"tp", 8, {}}, {"cp", 5, {}}, {"dp", 250, {}}, {"pp", 10, {}}},
                {{"tp", 2, 2}, {"dp", 25, 10}}, 997);
}

TEST(RankGrid, PartsHaveShortNames) {
  const RankGrid grid({{"tp", 8, {}}, {"dp", 12, {{"outer", 3}, {"inner", 4}}}});
  EXPECT_EQ(blocks_of("tp", 4), "tp/4");
  EXPECT_EQ(inside_block("tp", 4), "tp%4");
  EXPECT_EQ(grid.size("tp/4"), 2);
  EXPECT_EQ(grid.coordinate(13, "tp/4"), 1);
  EXPECT_EQ(grid.size("tp%4"), 4);
  EXPECT_EQ(grid.coordinate(13, "tp%4"), 1);
  EXPECT_EQ(grid.part("inner/2"), (AxisPart{16, 2}));
  EXPECT_EQ(grid.part("dp/4"), grid.part("outer"));
  // Parts that overlap are taken once.
  EXPECT_EQ(grid.group_of(3, {"tp%4", "tp/2"}), grid.group_of(3, {"tp"}));
  EXPECT_EQ(grid.group_of(3, {"tp%4", "tp%2"}), grid.group_of(3, {"tp%4"}));
  EXPECT_FALSE(grid.has("tp/3"));
  EXPECT_FALSE(grid.has("tp/2%3"));
  EXPECT_FALSE(grid.has("cp/2"));
}

TEST(RankGrid, EqualsSlowEnumerationUpTo100000Ranks) {
  compare({{"tp", 8, {{"tp_kv", 2}, {"tp_rep", 4}}},
           {"cp", 5, {}},
           {"dp", 250, {{"outer", 10}, {"inner", 25}}},
           {"pp", 10, {}}},
          {{"tp"}, {"pp"}, {"inner"}, {"tp_kv", "outer"}, {"dp", "cp"}, {"tp", "pp"}}, 5);
  compare({{"pp", 16, {}}, {"dp", 512, {}}, {"tp", 8, {}}}, {{"tp"}, {"dp"}, {"pp", "tp"}}, 5);
}

TEST(RankGrid, KnownGroupsOfMegatronsOrder) {
  // 16 ranks, tensor 2, data 2, pipeline 4: tensor neighbours, pipelines with stride 4.
  const RankGrid grid({{"tp", 2, {}}, {"cp", 1, {}}, {"ep", 1, {}}, {"dp", 2, {}}, {"pp", 4, {}}});
  EXPECT_EQ(grid.group_of(5, {"tp"}), (Ranks{4, 5}));
  EXPECT_EQ(grid.group_of(5, {"dp"}), (Ranks{5, 7}));
  EXPECT_EQ(grid.group_of(5, {"pp"}), (Ranks{1, 5, 9, 13}));
  EXPECT_EQ(grid.groups({"tp", "dp"}).size(), 4U);
  EXPECT_EQ(grid.with_coordinate(5, "pp", 3), 13);
  EXPECT_EQ(grid.describe(13), "tp 1, dp 0, pp 3");
}

TEST(RankGrid, WithCoordinateChangesOnlyThatAxis) {
  const RankGrid grid(kFactored);
  for (const std::string name : {"tp", "tp_kv", "tp_rep", "middle", "dp", "pp"}) {
    for (std::int64_t value = 0; value < grid.size(name); ++value) {
      const std::int64_t moved = grid.with_coordinate(101, name, value);
      EXPECT_EQ(grid.coordinate(moved, name), value);
      EXPECT_EQ(grid.group_of(moved, {name}), grid.group_of(101, {name}));
    }
  }
}

TEST(RankGrid, PrintsItself) {
  const RankGrid grid(kFactored);
  const std::string text = grid.to_string();
  EXPECT_NE(text.find("288 ranks"), std::string::npos) << text;
  EXPECT_NE(text.find("tp_kv 2 x tp_rep 2"), std::string::npos) << text;
  EXPECT_EQ(RankGrid({{"dp", 1, {}}}).describe(0), "");
  EXPECT_TRUE(grid.has("inner"));
  EXPECT_FALSE(grid.has("etp"));
}

ErrorKind kind_of(const std::function<void()>& call, const std::string& part) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    return error.kind();
  }
  ADD_FAILURE() << "no error; expected one that says " << part;
  return ErrorKind::kInternal;
}

TEST(RankGrid, BadInputIsNamed) {
  const auto make = [](std::vector<Axis> axes) {
    return [axes] { static_cast<void>(RankGrid(axes)); };
  };
  EXPECT_EQ(kind_of(make({{"tp", 0, {}}}), "size 0"), ErrorKind::kConfig);
  EXPECT_EQ(kind_of(make({{"tp/2", 2, {}}}), "'tp/2'"), ErrorKind::kConfig);
  EXPECT_EQ(kind_of(make({{"tp", 2, {{"a%b", 2}}}}), "'a%b'"), ErrorKind::kConfig);
  EXPECT_EQ(kind_of(make({{"tp", -2, {}}}), "size -2"), ErrorKind::kConfig);
  EXPECT_EQ(kind_of(make({{"", 2, {}}}), "no name"), ErrorKind::kConfig);
  EXPECT_EQ(kind_of(make({{"tp", 2, {}}, {"tp", 2, {}}}), "'tp' is used twice"),
            ErrorKind::kConfig);
  EXPECT_EQ(kind_of(make({{"tp", 2, {{"dp", 2}}}, {"dp", 2, {}}}), "'dp' is used twice"),
            ErrorKind::kConfig);
  EXPECT_EQ(kind_of(make({{"tp", 6, {{"a", 2}, {"b", 2}}}}), "multiply to 4"), ErrorKind::kConfig);
  EXPECT_EQ(kind_of(make({{"tp", 0, {{"a", 0}}}}), "size 0"), ErrorKind::kConfig);
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_EQ(kind_of(make({{"tp", huge, {}}, {"dp", huge, {}}}), "overflows"), ErrorKind::kConfig);
  const RankGrid twelve({{"tp", 12, {}}});
  for (const char* name : {"", "/2", "tp/", "tp%", "tp/0", "tp%-1", "tp%2/2", "tp/2/3", "tp/2x"}) {
    EXPECT_EQ(kind_of([&] { static_cast<void>(twelve.size(name)); }, name), ErrorKind::kInternal)
        << name;
  }
  EXPECT_EQ(kind_of([&] { static_cast<void>(twelve.size("tp/5")); }, "tp/5"), ErrorKind::kInternal);
  EXPECT_EQ(kind_of(
                [&] {
                  static_cast<void>(twelve.group_of(0, {"tp%6", "tp/4"}));
                },
                "overlap"),
            ErrorKind::kInternal);
  const RankGrid grid(kFactored);
  EXPECT_EQ(kind_of([&] { static_cast<void>(grid.coordinate(288, "tp")); }, "288"),
            ErrorKind::kInternal);
  EXPECT_EQ(kind_of([&] { static_cast<void>(grid.size("etp")); }, "'etp'"), ErrorKind::kInternal);
  EXPECT_EQ(kind_of([&] { static_cast<void>(grid.group_of(0, {"x"})); }, "'x'"),
            ErrorKind::kInternal);
  EXPECT_EQ(kind_of([&] { static_cast<void>(grid.with_coordinate(0, "pp", 2)); }, "'pp'"),
            ErrorKind::kInternal);
}

}  // namespace
}  // namespace pentatron::comm
