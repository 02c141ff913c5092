// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/tensor_layout.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/parallel_layers/test_support.h"

namespace pentatron::parallel_layers {
namespace {

using test_support::copies_over_tp;
using test_support::over_tp;
using Names = std::vector<std::string>;

TEST(TensorLayout, OneRankKnowsNoSequenceParallelism) {
  EXPECT_FALSE(make_tensor_layout(1, 0, true).sequence_parallel);
  EXPECT_TRUE(make_tensor_layout(2, 0, true).sequence_parallel);
  EXPECT_FALSE(make_tensor_layout(2, 0, false).sequence_parallel);
  EXPECT_THROW(static_cast<void>(make_tensor_layout(4, 4, false)), Error);
}

TEST(TensorLayout, CutsNameAxesReplicasAndPartialGradients) {
  const TensorLayout layout = make_tensor_layout(4, 3, true);
  const nn::ShardSpec spec =
      lay_out({{.name = "q", .rows = 8, .columns = 5, .cut = over_tp(4)},
               {.name = "k", .rows = 4, .columns = 5, .cut = copies_over_tp(2)},
               {.name = "v", .rows = 4, .columns = 5, .cut = copies_over_tp(1)}},
              layout);
  EXPECT_EQ(spec.local_shape, (Shape{2 + 2 + 4, 5}));
  EXPECT_EQ(spec.parts[0].box, (nn::Box{{6, 0}, {2, 5}}));
  EXPECT_EQ(spec.parts[0].split_axes, Names{"tp"});
  EXPECT_TRUE(spec.parts[0].replicate_axes.empty());
  EXPECT_TRUE(spec.parts[0].partial_grad_axes.empty());
  EXPECT_EQ(spec.parts[1].box, (nn::Box{{2, 0}, {2, 5}}));
  EXPECT_EQ(spec.parts[1].local_row_begin, 2);
  EXPECT_EQ(spec.parts[1].split_axes, Names{"tp/2"});
  EXPECT_EQ(spec.parts[1].replicate_axes, Names{"tp%2"});
  EXPECT_EQ(spec.parts[1].partial_grad_axes, Names{"tp%2"});
  EXPECT_EQ(spec.parts[1].replica, 1);
  EXPECT_TRUE(spec.parts[2].split_axes.empty());
  EXPECT_EQ(spec.parts[2].partial_grad_axes, Names{"tp"});
  EXPECT_EQ(spec.parts[2].replica, 3);
  const nn::ShardPart norm = lay_out({{.name = "n", .rows = 6}}, layout).parts[0];
  EXPECT_EQ(norm.partial_grad_axes, Names{"tp"});
  EXPECT_EQ(norm.replica, 3);
  EXPECT_EQ(norm.role, nn::ShardRole::kVector);
  const TensorLayout no_sp = make_tensor_layout(4, 3, false);
  EXPECT_TRUE(lay_out({{.name = "n", .rows = 6}}, no_sp).parts[0].partial_grad_axes.empty());
}

TEST(TensorLayout, ColumnsAreCutLikeRows) {
  const TensorLayout layout = make_tensor_layout(4, 3, false);
  const auto columns = [&](std::int64_t count, std::int64_t units) {
    return lay_out({{"c", 6, count, over_tp(units), true}}, layout).parts[0];
  };
  EXPECT_EQ(columns(8, 8).box, (nn::Box{{0, 6}, {6, 2}}));
  EXPECT_EQ(columns(24, 4).box, (nn::Box{{0, 18}, {6, 6}}));
  EXPECT_EQ(columns(8, 8).role, nn::ShardRole::kMatrix);
  EXPECT_THROW(static_cast<void>(columns(9, 9)), Error);
  // Nine columns are no whole number of four heads.
  EXPECT_THROW(static_cast<void>(columns(9, 4)), Error);
}

TEST(TensorLayout, PaddedVocabularyEndsInEmptyBoxes) {
  std::int64_t real = 0;
  const auto words = [](std::int64_t padded) {
    return PartRule{
        .name = "e", .rows = 13, .columns = 3, .cut = over_tp(padded), .padded_rows = padded};
  };
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const nn::ShardPart part = lay_out({words(32)}, make_tensor_layout(4, rank, false)).parts[0];
    EXPECT_EQ(part.local_rows, 8);
    EXPECT_EQ(part.box.offset[0], std::min<std::int64_t>(rank * 8, 13));
    real += part.box.size[0];
  }
  EXPECT_EQ(real, 13);
  EXPECT_THROW(static_cast<void>(lay_out({words(12)}, make_tensor_layout(1, 0, false))), Error);
}

TEST(TensorLayout, ExpertsAreCutOverTheirOwnGrid) {
  const comm::Grids grids =
      comm::make_grids({.world = 8, .tensor = 4, .expert = 2, .expert_tensor = 2});
  const TensorLayout layout = make_tensor_layout(comm::Place(grids, 3), true);
  const Cut channels{.axis = "etp", .units = 6, .option = "--moe-ffn-hidden-size"};
  const nn::ShardPart fc1 =
      lay_out({{.name = "w", .rows = 6, .columns = 2, .cut = channels, .grid = "expert"}}, layout)
          .parts[0];
  EXPECT_EQ(fc1.grid, "expert");
  EXPECT_EQ(fc1.split_axes, Names{"etp"});
  EXPECT_EQ(fc1.box, (nn::Box{{3, 0}, {3, 2}}));
  // A whole part of an expert sees all rows that are routed to it: nothing is partial over etp.
  const nn::ShardPart whole =
      lay_out({{.name = "b", .rows = 6, .grid = "expert"}}, layout).parts[0];
  EXPECT_EQ(whole.replicate_axes, Names{"etp"});
  EXPECT_EQ(whole.replica, 1);
  EXPECT_TRUE(whole.partial_grad_axes.empty());
}

}  // namespace
}  // namespace pentatron::parallel_layers
