// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "pentatron/base/error.h"

namespace pentatron::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <typename C>
std::vector<C> numbers(std::int64_t count, double scale, int seed) {
  std::vector<C> x(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = static_cast<C>(scale * std::sin(1.3 * static_cast<double>(i) + 5.0 * seed));
  }
  return x;
}

// Of every width of vector registers that this processor has.
class Rows : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() > widest_) GTEST_SKIP() << "this processor or build has narrower registers";
    rows::set_vector_bytes(GetParam());
  }
  void TearDown() override { rows::set_vector_bytes(widest_); }

 private:
  const int widest_ = rows::vector_bytes();
};
INSTANTIATE_TEST_SUITE_P(VectorBytes, Rows, ::testing::Values(16, 32, 64),
                         ::testing::PrintToStringParamName());

TEST_P(Rows, ExponentialToThreeUnitsInTheLastPlace) {
  std::vector<float> x, y;
  for (double at = -87.5; at <= 88.0; at += 0.00317) x.push_back(static_cast<float>(at));
  y.resize(x.size());
  rows::exp_shifted(x.data(), 0.0f, y.data(), static_cast<std::int64_t>(x.size()));
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(y[i] / exact - 1.0));
  }
  EXPECT_LT(worst, 3 * std::ldexp(1.0, -24));
}

// Whole vectors and remainders alike.
TEST_P(Rows, ExponentialAtTheEnds) {
  for (const std::int64_t n : {5, 16, 21}) {
    const auto all = [&](double value) {
      const std::vector<float> x(n, static_cast<float>(value));
      std::vector<float> y(n, -1.0f);
      rows::exp_shifted(x.data(), 0.0f, y.data(), n);
      for (const float v : y) EXPECT_TRUE(v == y[0] || (std::isnan(v) && std::isnan(y[0])));
      return y[0];
    };
    EXPECT_EQ(all(0.0), 1.0f);
    EXPECT_EQ(all(-kInf), 0.0f);
    EXPECT_EQ(all(-89.0), 0.0f);
    EXPECT_EQ(all(-1e30), 0.0f);
    EXPECT_EQ(all(100.0), all(88.0));
    EXPECT_TRUE(std::isfinite(all(kInf)));
    EXPECT_TRUE(std::isnan(all(std::nan(""))));
  }
}

// Small arguments, where 1 - 2 / (exp(2x) + 1) would cancel, and large ones.
TEST_P(Rows, SoftcapIsATanh) {
  constexpr double kCap = 30.0;
  std::vector<float> x;
  for (double at = -9.0; at <= 9.0; at += 0.00917) x.push_back(static_cast<float>(kCap * at));
  x.insert(x.end(), {1e-6f, -3e-4f, 1e9f, -1e9f, 0.0f});
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> y = x, z = x, slope(x.size());
  rows::softcap(y.data(), static_cast<float>(kCap), n);
  rows::softcap_with_slope(z.data(), static_cast<float>(kCap), slope.data(), n);
  std::vector<double> wide(x.begin(), x.end());
  rows::softcap(wide.data(), kCap, n);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double t = std::tanh(x[i] / kCap);
    EXPECT_NEAR(y[i], kCap * t, 6e-7 * kCap * std::abs(t)) << x[i];
    EXPECT_EQ(z[i], y[i]);
    EXPECT_NEAR(slope[i], 1.0 - t * t, 4e-7);
    EXPECT_DOUBLE_EQ(wide[i], kCap * std::tanh(x[i] / kCap));
  }
}

// For each number of visible scores: against fp64 of the visible ones; what stands behind them does
// not count, be it NaN.
template <typename C>
void check_softmax(double tolerance) {
  for (const std::int64_t width : {1, 15, 16, 17, 40}) {
    const std::int64_t room = (width + 15) / 16 * 16;
    for (std::int64_t n = 0; n <= width; ++n) {
      for (const double least : {-kInf, 2.5}) {
        if (n == 0 && least == -kInf) continue;
        const std::vector<C> scores = numbers<C>(n, 3.0, 1);
        std::vector<C> x(room, static_cast<C>(std::nan("")));
        std::copy(scores.begin(), scores.end(), x.begin());
        const auto [maximum, sum] =
            rows::softmax_visible(x.data(), n, width, static_cast<C>(least));
        double expected_max = least, expected_sum = 0;
        for (const C s : scores) expected_max = std::max(expected_max, static_cast<double>(s));
        ASSERT_EQ(maximum, static_cast<C>(expected_max)) << n << " of " << width;
        for (std::int64_t i = 0; i < width; ++i) {
          const double e = i < n ? std::exp(static_cast<double>(scores[i]) - expected_max) : 0.0;
          expected_sum += e;
          ASSERT_NEAR(x[i], e, tolerance) << i << ", " << n << " of " << width;
          if (i >= n) {
            ASSERT_EQ(x[i], C(0));
          }
        }
        ASSERT_NEAR(sum, expected_sum, tolerance * static_cast<double>(n + 1));
      }
    }
  }
}
TEST_P(Rows, SoftmaxOfTheVisibleScores) {
  check_softmax<float>(1e-6);
  check_softmax<double>(1e-14);
}

template <typename C>
void check_softmax_backward(bool whole_row, double tolerance) {
  for (const std::int64_t width : {1, 16, 17, 40}) {
    const std::int64_t room = (width + 15) / 16 * 16;
    for (std::int64_t n = 0; n <= width; ++n) {
      const std::vector<C> scores = numbers<C>(n, 3.0, 1), grads = numbers<C>(n, 1.0, 2);
      std::vector<C> p(room, static_cast<C>(std::nan(""))), dp = p;
      std::copy(scores.begin(), scores.end(), p.begin());
      std::copy(grads.begin(), grads.end(), dp.begin());
      const C given(0.25);
      rows::softmax_visible_backward(p.data(), dp.data(), C(3.5), whole_row ? nullptr : &given, n,
                                     width);
      double delta = 0.25;
      if (whole_row) {
        double sum = 0;
        delta = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          const double e = std::exp(static_cast<double>(scores[i]) - 3.5);
          sum += e;
          delta += e * static_cast<double>(grads[i]);
        }
        if (n > 0) delta /= sum;
      }
      for (std::int64_t i = 0; i < width; ++i) {
        const double e = i < n ? std::exp(static_cast<double>(scores[i]) - 3.5) : 0.0;
        const double d = i < n ? e * (static_cast<double>(grads[i]) - delta) : 0.0;
        ASSERT_NEAR(p[i], e, tolerance) << i << ", " << n << " of " << width;
        ASSERT_NEAR(dp[i], d, tolerance) << i << ", " << n << " of " << width;
      }
    }
  }
}
TEST_P(Rows, SoftmaxGradientOfTheVisibleScores) {
  for (const bool whole_row : {false, true}) {
    check_softmax_backward<float>(whole_row, 1e-6);
    check_softmax_backward<double>(whole_row, 1e-14);
  }
}

// tanh form; whole vectors and remainders give the same.
TEST_P(Rows, GeluAndItsGradient) {
  std::vector<float> x, dy;
  for (double at = -12.0; at <= 12.0; at += 0.0137) x.push_back(static_cast<float>(at));
  const auto n = static_cast<std::int64_t>(x.size());
  dy.assign(x.size(), 0.5f);
  std::vector<float> y(x.size()), dx(x.size()), one(1);
  rows::gelu(x.data(), y.data(), n);
  rows::gelu_backward(x.data(), dy.data(), dx.data(), n);
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = x[i], scale = std::sqrt(2.0 / M_PI);
    const double t = std::tanh(scale * (v + 0.044715 * v * v * v));
    const double slope = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * scale * (1 + 3 * 0.044715 * v * v);
    ASSERT_NEAR(y[i], 0.5 * v * (1 + t), 1e-6 * (1 + std::abs(v))) << v;
    ASSERT_NEAR(dx[i], 0.5 * slope, 2e-6) << v;
    rows::gelu(&x[i], one.data(), 1);
    ASSERT_NEAR(one[0], y[i], 1e-6 * (1 + std::abs(v))) << v;
  }
}

// Lane by lane, halves onto each other at the end: the order that rows.h promises.
TEST_P(Rows, SumsRunOverSixteenLanes) {
  for (const std::int64_t n : {0, 1, 15, 16, 17, 100}) {
    const std::vector<float> x = numbers<float>(n, 2.0, 3);
    std::vector<float> lanes(16, 0.0f);
    for (std::int64_t i = 0; i < n; ++i) lanes[i % 16] += x[i];
    for (std::int64_t half = 8; half > 0; half /= 2) {
      for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    EXPECT_EQ(rows::sum(x.data(), n), lanes[0]) << n;
  }
}

// What has fused multiply-add gives the same bits, however wide.
TEST(RowsOfAnyWidth, SameBitsWithAvx2AndAvx512) {
  const int widest = rows::vector_bytes();
  if (widest < 64) GTEST_SKIP() << "this processor or build lacks AVX-512";
  const auto all = [](int bytes) {
    rows::set_vector_bytes(bytes);
    std::vector<float> results;
    for (const std::int64_t n : {1, 16, 21, 100}) {
      const std::int64_t room = (n + 15) / 16 * 16;
      const std::vector<float> x = numbers<float>(n, 3.0, 1), dy = numbers<float>(n, 1.0, 2);
      std::vector<float> y(n), p(room, 0.0f), dp(room, 0.0f);
      const auto keep = [&] { results.insert(results.end(), y.begin(), y.end()); };
      results.push_back(rows::exp_shifted(x.data(), 0.5f, y.data(), n));
      keep();
      results.push_back(rows::sum_exp_shifted(x.data(), 0.5f, n));
      results.push_back(rows::dot(x.data(), dy.data(), n));
      rows::gelu(x.data(), y.data(), n);
      keep();
      rows::gelu_backward(x.data(), dy.data(), y.data(), n);
      keep();
      std::copy(x.begin(), x.end(), p.begin());
      std::copy(dy.begin(), dy.end(), dp.begin());
      results.push_back(rows::softmax_visible(p.data(), n, n, -10.0f).sum);
      std::copy(x.begin(), x.end(), p.begin());
      rows::softmax_visible_backward(p.data(), dp.data(), 3.5f, nullptr, n, n);
      std::copy_n(dp.begin(), n, y.begin());
      keep();
    }
    return results;
  };
  const std::vector<float> narrow = all(32), wide = all(64);
  rows::set_vector_bytes(widest);
  EXPECT_EQ(narrow, wide);
}

TEST(RowsOfAnyWidth, RefusesRegistersThatAreNotThere) {
  EXPECT_THROW(rows::set_vector_bytes(24), Error);
  EXPECT_THROW(rows::set_vector_bytes(128), Error);
}

}  // namespace
}  // namespace pentatron::ops
