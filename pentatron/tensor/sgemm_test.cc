// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/sgemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/tensor/parallel.h"

namespace pentatron::tensor {
namespace {

// Numbers between -1 and 1 that differ from place to place.
std::vector<float> numbers(std::int64_t count, int seed) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + 11.0 * seed));
  }
  return x;
}

struct Case {
  std::int64_t m, n, k;
  bool trans_a, trans_b;
  float alpha, beta;
  bool bias;
};

std::string text_of(const Case& c) {
  return std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) +
         (c.trans_a ? " T" : " N") + (c.trans_b ? "T" : "N") + " alpha " + std::to_string(c.alpha) +
         " beta " + std::to_string(c.beta) + (c.bias ? " bias" : "");
}

// Against sums in fp64; rows stand further apart than they are long, and what lies between them
// stays as it was. With beta == 0 the old values are NaN.
void check(const Case& x, VectorSet set) {
  SCOPED_TRACE(text_of(x));
  const std::int64_t lda = (x.trans_a ? x.m : x.k) + 3, ldb = (x.trans_b ? x.k : x.n) + 5;
  const std::int64_t ldc = x.n + 2;
  const std::vector<float> a = numbers(lda * std::max(x.m, x.k), 1);
  const std::vector<float> b = numbers(ldb * std::max(x.n, x.k), 2), bias = numbers(x.n, 3);
  std::vector<float> c = numbers(ldc * x.m, 4);
  if (x.beta == 0.0f) std::fill(c.begin(), c.end(), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t i = 0; i < x.m; ++i) c[i * ldc + x.n] = c[i * ldc + x.n + 1] = 77.0f;
  const std::vector<float> before = c;
  own_sgemm({.trans_a = x.trans_a ? Transpose::kYes : Transpose::kNo,
             .trans_b = x.trans_b ? Transpose::kYes : Transpose::kNo,
             .m = x.m,
             .n = x.n,
             .k = x.k,
             .alpha = x.alpha,
             .a = a.data(),
             .lda = lda,
             .b = b.data(),
             .ldb = ldb,
             .beta = x.beta,
             .c = c.data(),
             .ldc = ldc,
             .bias = x.bias ? bias.data() : nullptr},
            set);
  for (std::int64_t i = 0; i < x.m; ++i) {
    for (std::int64_t j = 0; j < x.n; ++j) {
      double sum = 0, size = 1;
      for (std::int64_t p = 0; p < x.k; ++p) {
        const double term = static_cast<double>(x.trans_a ? a[p * lda + i] : a[i * lda + p]) *
                            static_cast<double>(x.trans_b ? b[j * ldb + p] : b[p * ldb + j]);
        sum += term;
        size += std::abs(term);
      }
      double expected = x.alpha * sum;
      if (x.beta != 0.0f) expected += x.beta * static_cast<double>(before[i * ldc + j]);
      if (x.bias) expected += static_cast<double>(bias[j]);
      ASSERT_NEAR(c[i * ldc + j], expected, 1e-6 * size) << "row " << i << ", column " << j;
    }
    ASSERT_EQ(c[i * ldc + x.n], 77.0f) << "behind row " << i;
    ASSERT_EQ(c[i * ldc + x.n + 1], 77.0f) << "behind row " << i;
  }
}

class OwnSgemm : public ::testing::TestWithParam<VectorSet> {
 protected:
  void SetUp() override {
    if (GetParam() > vector_set()) GTEST_SKIP() << "this processor or build lacks the instructions";
  }
};

// Every remainder of rows and columns against tiles of 8 x 32 and 6 x 16, both ways of reading.
TEST_P(OwnSgemm, EveryShapeAndTransposition) {
  for (const std::int64_t m : {1, 3, 4, 5, 6, 8, 11, 17, 40}) {
    for (const std::int64_t n : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 70}) {
      for (const std::int64_t k : {0, 1, 7, 8, 19, 33}) {
        for (const int way : {0, 1, 2, 3}) {
          check({m, n, k, way % 2 == 1, way / 2 == 1, 1.0f, 0.0f, false}, GetParam());
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(OwnSgemm, AlphaBetaAndBias) {
  for (const float beta : {0.0f, 1.0f, -0.5f}) {
    for (const bool bias : {false, true}) {
      for (const int way : {0, 1, 2, 3}) {
        check({13, 45, 21, way % 2 == 1, way / 2 == 1, 0.3f, beta, bias}, GetParam());
        check({24, 600, 1000, way % 2 == 1, way / 2 == 1, 0.5f, beta, bias}, GetParam());
        check({24, 64, 300, way % 2 == 1, way / 2 == 1, 1.0f, beta, bias}, GetParam());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Several blocks of rows over the same packed panels of b, several blocks of columns and of depth.
TEST_P(OwnSgemm, ManyBlocks) {
  for (const int way : {0, 1, 2, 3}) {
    const bool trans_a = way % 2 == 1, trans_b = way / 2 == 1;
    check({600, 345, 40, trans_a, trans_b, 0.5f, 0.25f, true}, GetParam());
    check({600, 33, 400, trans_a, trans_b, 1.0f, 0.0f, true}, GetParam());
    check({270, 2100, 20, trans_a, trans_b, 1.0f, 0.0f, true}, GetParam());
    check({13, 2075, 390, trans_a, trans_b, 1.0f, 1.0f, false}, GetParam());
    if (HasFatalFailure()) return;
  }
}

TEST_P(OwnSgemm, AnElementDoesNotDependOnTheMatrixAroundIt) {
  const std::int64_t k = 50, n = 70;
  const std::vector<float> a = numbers(40 * k, 1), b = numbers(k * n, 2);
  std::vector<float> whole(40 * n), row(n);
  const auto multiply = [&](std::int64_t m, const float* from, std::vector<float>& to) {
    own_sgemm({.m = m,
               .n = n,
               .k = k,
               .a = from,
               .lda = k,
               .b = b.data(),
               .ldb = n,
               .c = to.data(),
               .ldc = n},
              GetParam());
  };
  multiply(40, a.data(), whole);
  for (std::int64_t i = 0; i < 40; ++i) {
    multiply(1, a.data() + i * k, row);
    for (std::int64_t j = 0; j < n; ++j) ASSERT_EQ(row[j], whole[i * n + j]) << i << ", " << j;
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, OwnSgemm, ::testing::Values(VectorSet::kAvx2, VectorSet::kAvx512),
                         [](const auto& set) {
                           return set.param == VectorSet::kAvx2 ? "Avx2" : "Avx512";
                         });

TEST_P(OwnSgemm, ThreadsGiveTheSameBits) {
  struct Sizes {
    std::int64_t m, n, k;
  };
  for (const Sizes& size :
       {Sizes{257, 65, 130}, Sizes{33, 400, 1000}, Sizes{800, 530, 20}, Sizes{5, 7, 3}}) {
    const auto [m, n, k] = size;
    const std::vector<float> a = numbers(m * k, 1), b = numbers(k * n, 2), bias = numbers(n, 3);
    for (const int way : {0, 1, 2, 3}) {
      const bool trans_a = way % 2 == 1, trans_b = way / 2 == 1;
      const auto with_threads = [&, m = m, n = n, k = k](int threads) {
        set_num_threads(threads);
        std::vector<float> c(m * n);
        own_sgemm({.trans_a = trans_a ? Transpose::kYes : Transpose::kNo,
                   .trans_b = trans_b ? Transpose::kYes : Transpose::kNo,
                   .m = m,
                   .n = n,
                   .k = k,
                   .a = a.data(),
                   .lda = trans_a ? m : k,
                   .b = b.data(),
                   .ldb = trans_b ? k : n,
                   .c = c.data(),
                   .ldc = n,
                   .bias = bias.data()},
                  GetParam());
        set_num_threads(1);
        return c;
      };
      const std::vector<float> alone = with_threads(1);
      EXPECT_EQ(with_threads(2), alone) << m << " x " << n << ", way " << way;
      EXPECT_EQ(with_threads(5), alone) << m << " x " << n << ", way " << way;
    }
  }
}

// Sizes whose products overflow are asked about too.
TEST(Sgemm, ThreadsDoNotDecideWhoMultiplies) {
  for (const std::int64_t size :
       {std::int64_t{1}, std::int64_t{256}, std::int64_t{1} << 14, std::int64_t{1} << 40}) {
    set_num_threads(1);
    const bool alone = prefers_own_sgemm(size, size, 64);
    set_num_threads(2);
    EXPECT_EQ(prefers_own_sgemm(size, size, 64), alone) << size;
  }
  set_num_threads(1);
}

TEST(Sgemm, RefusesInstructionsThatAreNotThere) {
  EXPECT_THROW(own_sgemm({}, VectorSet::kNone), Error);
}

}  // namespace
}  // namespace pentatron::tensor
