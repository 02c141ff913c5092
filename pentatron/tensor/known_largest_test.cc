// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/known_largest.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::tensor {
namespace {

TEST(KnownLargest, StaysWithTheValuesItIsOf) {
  const Tensor x = full({4, 4}, -3.0, DType::BFloat16);
  EXPECT_FALSE(noted_largest(x).defined());
  note_largest(x, full({}, 3.0, DType::Float));
  ASSERT_TRUE(noted_largest(x).defined());
  EXPECT_EQ(noted_largest(x).item<float>(), 3.0F);
  EXPECT_TRUE(noted_largest(x.detach()).defined());
  EXPECT_FALSE(noted_largest(x.clone()).defined());
  EXPECT_FALSE(noted_largest(x.narrow(0, 0, 2)).defined());
  EXPECT_FALSE(noted_largest(x.t()).defined());
  const Tensor same = x.contiguous();
  EXPECT_TRUE(noted_largest(same).defined());
  note_largest(x, place_of_largest(false, x));
  EXPECT_TRUE(noted_largest(x).defined());
  EXPECT_FALSE(place_of_largest(true, x.narrow(0, 0, 0)).defined());
  EXPECT_TRUE(place_of_largest(true, x).defined());
  x.add_(1.0);
  EXPECT_FALSE(noted_largest(x).defined());
  EXPECT_FALSE(noted_largest(same).defined());
  EXPECT_THROW(note_largest(x, full({}, 3.0, DType::Double)), Error);
}

}  // namespace
}  // namespace pentatron::tensor
