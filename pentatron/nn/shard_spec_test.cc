// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/shard_spec.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::nn {
namespace {

ShardPart part(std::string name, std::int64_t row_begin, std::int64_t rows,
               std::int64_t real_rows) {
  ShardPart p;
  p.name = std::move(name);
  p.logical_shape = {10, 4};
  p.box = {{2, 0}, {real_rows, 4}};
  p.local_row_begin = row_begin;
  p.local_rows = rows;
  return p;
}

ShardSpec spec() { return {{part("a", 0, 3, 3), part("b", 3, 4, 2)}, {7, 4}}; }

TEST(ShardSpec, SoundSpecPassesAndViewsRealRows) {
  const ShardSpec good = spec();
  check_spec(good);
  const Tensor local = tensor::arange(28, DType::Double).view({7, 4});
  const Tensor b = part_view(local, good.parts[1]);
  EXPECT_EQ(tensor::shape_of(b), (Shape{2, 4}));
  EXPECT_EQ(b.select(0, 0).select(0, 0).item<double>(), 12.0);
}

TEST(ShardSpec, EveryMisuseIsFound) {
  const std::vector<std::function<void(ShardSpec&)>> breaks = {
      [](ShardSpec& s) { s.parts.clear(); },
      [](ShardSpec& s) { s.parts[1].name.clear(); },
      [](ShardSpec& s) { s.parts[1].local_row_begin = 2; },   // overlaps the first
      [](ShardSpec& s) { s.parts[1].local_rows = 5; },        // leaves the tensor
      [](ShardSpec& s) { s.parts[1].box.size[0] = 5; },       // more real rows than rows
      [](ShardSpec& s) { s.parts[1].box.offset[0] = 9; },     // outside the logical shape
      [](ShardSpec& s) { s.parts[1].box.size[1] = 3; },       // width differs
      [](ShardSpec& s) { s.parts[1].logical_shape = {10}; },  // dimensions differ
      [](ShardSpec& s) { s.parts[1].replica = -1; },
      [](ShardSpec& s) { std::swap(s.parts[0], s.parts[1]); },  // order
  };
  for (std::size_t i = 0; i < breaks.size(); ++i) {
    ShardSpec bad = spec();
    breaks[i](bad);
    EXPECT_THROW(check_spec(bad), Error) << "case " << i;
  }
}

TEST(ShardSpec, TilingSeesHolesOverlapsAndOutsiders) {
  const Shape shape{4, 6};
  const Box left{{0, 0}, {4, 2}};
  const Box right_top{{0, 2}, {1, 4}};
  const Box right_bottom{{1, 2}, {3, 4}};
  EXPECT_TRUE(tiles_exactly(shape, {right_bottom, left, right_top}));
  EXPECT_TRUE(tiles_exactly(shape, {right_bottom, left, right_top, {{4, 0}, {0, 6}}}));
  EXPECT_FALSE(tiles_exactly(shape, {left, right_top}));
  // The volumes add up, but one element is covered twice and one not at all.
  EXPECT_FALSE(tiles_exactly({4}, {{{0}, {2}}, {{1}, {2}}}));
  EXPECT_FALSE(tiles_exactly(shape, {left, left, right_bottom, right_top}));
  EXPECT_FALSE(tiles_exactly(shape, {{{0, 0}, {4, 7}}}));
  EXPECT_FALSE(tiles_exactly(shape, {{{0}, {24}}}));
}

TEST(ParameterPlan, FindsByNameAndRefusesTwice) {
  ParameterPlan plan;
  plan.add({"x", spec(), 3});
  EXPECT_EQ(plan.at("x").layer, 3);
  EXPECT_EQ(plan.find("y"), nullptr);
  EXPECT_THROW(static_cast<void>(plan.at("y")), Error);
  EXPECT_THROW(plan.add({"x", spec(), 4}), Error);
  EXPECT_EQ(plan.num_local_elements(), 28);
}

}  // namespace
}  // namespace pentatron::nn
