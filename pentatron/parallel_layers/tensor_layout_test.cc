// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/tensor_layout.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"

namespace pentatron::parallel_layers {
namespace {

using Names = std::vector<std::string>;

TEST(TensorLayout, FewerKvHeadsThanRanksFactorTheAxis) {
  const TensorLayout layout = make_tensor_layout(8, 5, 2, true);
  EXPECT_EQ(layout.kv_size, 2);
  EXPECT_EQ(layout.rep_size, 4);
  EXPECT_EQ(layout.kv_rank(), 1);
  EXPECT_EQ(layout.rep_rank(), 1);
  EXPECT_EQ(make_tensor_layout(2, 1, 8, false).rep_size, 1);
  EXPECT_FALSE(make_tensor_layout(1, 0, 8, true).sequence_parallel);
  EXPECT_THROW(static_cast<void>(make_tensor_layout(4, 0, 3, false)), Error);
  EXPECT_THROW(static_cast<void>(make_tensor_layout(4, 4, 4, false)), Error);
}

TEST(TensorLayout, CutsNameAxesReplicasAndPartialGradients) {
  const TensorLayout layout = make_tensor_layout(4, 3, 2, true);
  const nn::ShardSpec spec = lay_out(
      {{"q", 8, 5, Cut::kRows, {}}, {"k", 4, 5, Cut::kKvRows, {}}, {"v", 4, 5, Cut::kKvRows, {}}},
      layout);
  EXPECT_EQ(spec.local_shape, (Shape{2 + 2 + 2, 5}));
  EXPECT_EQ(spec.parts[0].box, (nn::Box{{6, 0}, {2, 5}}));
  EXPECT_EQ(spec.parts[0].split_axes, Names{"tp"});
  EXPECT_TRUE(spec.parts[0].partial_grad_axes.empty());
  EXPECT_EQ(spec.parts[1].box, (nn::Box{{2, 0}, {2, 5}}));
  EXPECT_EQ(spec.parts[1].local_row_begin, 2);
  EXPECT_EQ(spec.parts[1].split_axes, Names{"tp_kv"});
  EXPECT_EQ(spec.parts[1].replicate_axes, Names{"tp_rep"});
  EXPECT_EQ(spec.parts[1].partial_grad_axes, Names{"tp_rep"});
  EXPECT_EQ(spec.parts[1].replica, 1);
  const nn::ShardPart norm = lay_out({{"n", 6, 0, Cut::kWhole, {}}}, layout).parts[0];
  EXPECT_EQ(norm.partial_grad_axes, Names{"tp"});
  EXPECT_EQ(norm.replica, 3);
  EXPECT_FALSE(norm.decay);
  const TensorLayout no_sp = make_tensor_layout(4, 3, 4, false);
  EXPECT_TRUE(lay_out({{"n", 6, 0, Cut::kWhole, {}}}, no_sp).parts[0].partial_grad_axes.empty());
  const nn::ShardPart columns = lay_out({{"c", 6, 8, Cut::kColumns, {}}}, no_sp).parts[0];
  EXPECT_EQ(columns.box, (nn::Box{{0, 6}, {6, 2}}));
  EXPECT_TRUE(columns.decay);
  EXPECT_THROW(static_cast<void>(lay_out({{"c", 6, 9, Cut::kColumns, {}}}, no_sp)), Error);
}

TEST(TensorLayout, PaddedVocabularyEndsInEmptyBoxes) {
  std::int64_t real = 0;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const nn::ShardPart part =
        lay_out({{"e", 13, 3, Cut::kVocabRows, {}, 32}}, make_tensor_layout(4, rank, 4, false))
            .parts[0];
    EXPECT_EQ(part.local_rows, 8);
    EXPECT_EQ(part.box.offset[0], std::min<std::int64_t>(rank * 8, 13));
    real += part.box.size[0];
  }
  EXPECT_EQ(real, 13);
  const TensorLayout one = make_tensor_layout(1, 0, 1, false);
  EXPECT_THROW(static_cast<void>(lay_out({{"e", 13, 3, Cut::kVocabRows, {}, 12}}, one)), Error);
}

}  // namespace
}  // namespace pentatron::parallel_layers
