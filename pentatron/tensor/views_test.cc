// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/views.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::tensor {
namespace {

TEST(Views, EqualTheLibrarysAndShareTheMemory) {
  const Tensor x = arange(60, DType::Float).view({6, 10}).narrow(0, 1, 4);
  EXPECT_TRUE(transposed(x).equal(x.t()));
  EXPECT_TRUE(narrowed(x, 1, 3, 5).equal(x.narrow(1, 3, 5)));
  EXPECT_TRUE(narrowed(transposed(x), 0, 2, 3).equal(x.t().narrow(0, 2, 3)));
  EXPECT_TRUE(selected(x, 2).equal(x.select(0, 2)));
  EXPECT_TRUE(split_last(x, 5).equal(x.reshape({4, 2, 5})));
  EXPECT_TRUE(split_last(narrowed(x, 1, 2, 6), 3).equal(x.narrow(1, 2, 6).reshape({4, 2, 3})));
  EXPECT_EQ(narrowed(x, 0, 4, 0).numel(), 0);
  EXPECT_TRUE(narrowed(x, 0, 0, 1).is_contiguous());
  EXPECT_FALSE(transposed(x).is_contiguous());
  Tensor first = selected(narrowed(x, 1, 3, 5), 1);
  first.fill_(-1.0);
  EXPECT_EQ(x.narrow(1, 3, 5).select(0, 1).sum().item<float>(), -5.0F);
}

TEST(Views, StandOutsideAnyGraph) {
  Tensor x = zeros({4, 6}, DType::Double).set_requires_grad(true);
  EXPECT_FALSE(transposed(x).requires_grad());
  EXPECT_FALSE(narrowed(x, 1, 0, 2).requires_grad());
}

TEST(Views, RefuseWhatIsNotThere) {
  const Tensor x = zeros({4, 6}, DType::Double);
  EXPECT_THROW(static_cast<void>(transposed(x.view({24}))), Error);
  EXPECT_THROW(static_cast<void>(narrowed(x, 1, 5, 2)), Error);
  EXPECT_THROW(static_cast<void>(narrowed(x, 1, -1, 2)), Error);
  EXPECT_THROW(static_cast<void>(narrowed(x, 2, 0, 1)), Error);
  EXPECT_THROW(static_cast<void>(narrowed(x, 0, 1, INT64_MAX)), Error);
  EXPECT_THROW(static_cast<void>(selected(x, 4)), Error);
  EXPECT_THROW(static_cast<void>(split_last(x, 4)), Error);
}

}  // namespace
}  // namespace pentatron::tensor
