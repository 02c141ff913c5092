// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/batch_tensors.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/sequence_cut.h"

namespace pentatron {
namespace {

Batch batch_of(std::int64_t first_token, std::int64_t rows = 8) {
  Batch batch;
  SequenceRows cut{.boundaries = {0, rows / 2, rows}};
  for (std::int64_t row = 0; row < rows; ++row) cut.positions.push_back(first_token + row);
  batch.sequences.emplace(Batch::kText, SequenceLayout(cut));
  std::vector<std::int64_t> tokens;
  for (std::int64_t row = 0; row < rows; ++row) tokens.push_back(first_token + 2 * row);
  batch.fields["tokens"] = tensor::from_vector(tokens);
  batch.fields["none"] = Tensor();
  return batch;
}

TEST(BatchTensors, CopyMakesOneBatchTheOther) {
  const Batch to = batch_of(0), from = batch_of(100);
  copy_tensors(to, from);
  EXPECT_TRUE(to.tokens().equal(from.tokens()));
  EXPECT_TRUE(to.text().positions().equal(from.text().positions()));
  const auto all = tensors_of(to);
  EXPECT_EQ(all.size(), tensors_of(from).size());
  for (const Tensor& t : all) EXPECT_TRUE(t.defined());
}

// A rank's share has more: where its rows stand among all, and plans of the whole.
TEST(BatchTensors, SharesOfAContextGroupAreThereWhole) {
  const auto share = [](std::int64_t first) {
    return cut_batch(batch_of(first), {.size = 2, .rank = 1});
  };
  const Batch to = share(0), from = share(100);
  EXPECT_GT(tensors_of(to).size(), tensors_of(batch_of(0)).size());
  copy_tensors(to, from);
  EXPECT_TRUE(to.text().positions().equal(from.text().positions()));
  EXPECT_TRUE(
      to.text().cut()->whole.layout.positions().equal(from.text().cut()->whole.layout.positions()));
}

TEST(BatchTensors, AnotherShapeIsRefused) {
  EXPECT_THROW(copy_tensors(batch_of(0), batch_of(0, 16)), Error);
}

}  // namespace
}  // namespace pentatron
