// SPDX-License-Identifier: Apache-2.0
// Variants of ops against what defines them: rotary tables, rotations of neighbours, zero-centred
// weights.
#include <cmath>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/norm.h"
#include "pentatron/ops/norm_test_support.h"
#include "pentatron/ops/rotary.h"
#include "pentatron/ops/testing.h"

namespace pentatron::ops {
namespace {

using testing::expect_close;
using testing::normal;
using testing::TestWeight;

double angle_of(const RotaryTable& table, std::int64_t position, std::int64_t i) {
  return std::atan2(table.sin[position][i].item().toDouble(),
                    table.cos[position][i].item().toDouble());
}

TEST(Rotary, InterleavedIsARotationOfNeighbours) {
  const RotaryTable table =
      make_rotary_table(4, 4, 100.0, DType::Double, kCpu, {.interleaved = true});
  const SequenceLayout layout({.boundaries = {0, 1}, .positions = {3}});
  const Tensor x = normal({1, 1, 6}, 1);
  const Tensor y = rotary(x, table, layout);
  const auto at = [](const Tensor& t, int i) { return t[0][0][i].item().toDouble(); };
  for (int pair = 0; pair < 2; ++pair) {
    const double angle = 3.0 * std::pow(100.0, -0.5 * pair);
    const double p = at(x, 2 * pair), q = at(x, 2 * pair + 1);
    EXPECT_NEAR(at(y, 2 * pair), p * std::cos(angle) - q * std::sin(angle), 1e-14);
    EXPECT_NEAR(at(y, 2 * pair + 1), q * std::cos(angle) + p * std::sin(angle), 1e-14);
  }
  EXPECT_EQ(at(y, 4), at(x, 4));
  EXPECT_EQ(at(y, 5), at(x, 5));
}

// Wavelengths of base 500,000 and 128 channels: 2 pi for channel 0, 21,000 for 41, in between
// for 35.
TEST(Rotary, FormsChangeTheAngles) {
  const auto table = [](const RotaryForm& form) {
    return make_rotary_table(3, 128, 500000.0, DType::Double, kCpu, form);
  };
  const RotaryTable plain = table({}), scaled = table({.llama3_factor = 8.0});
  const RotaryTable halved = table({.interpolation = 2.0});
  const double two_pi = 2.0 * std::acos(-1.0);
  for (std::int64_t i = 0; i < 64; ++i) {
    const double frequency = std::pow(500000.0, -static_cast<double>(i) / 64.0);
    EXPECT_NEAR(angle_of(plain, 1, i), frequency, 1e-14);
    EXPECT_NEAR(angle_of(halved, 2, i), frequency, 1e-14);
    const double wavelength = two_pi / frequency;
    const double s = (8192.0 / wavelength - 1.0) / 3.0;
    const double expected = wavelength > 8192.0   ? frequency / 8.0
                            : wavelength < 2048.0 ? frequency
                                                  : (1.0 - s) * frequency / 8.0 + s * frequency;
    EXPECT_NEAR(angle_of(scaled, 1, i), expected, 1e-14) << i;
  }
  EXPECT_THROW((void)table({.interpolation = 0.0}), Error);
  EXPECT_THROW((void)table({.llama3_factor = -1.0}), Error);
}

// Against the formulas written once more, pair by pair: which of the frequencies are kept, divided
// or mixed, where the range is rounded or not, and how long the rotated vectors are.
TEST(Rotary, YarnAnglesAndMagnitude) {
  constexpr double kBase = 10000.0, kPi = 3.14159265358979323846;
  constexpr std::int64_t kDim = 64;
  const auto turns_at = [&](double b, double original) {
    return kDim * std::log(original / (2.0 * kPi * b)) / (2.0 * std::log(kBase));
  };
  const std::vector<YarnForm> forms = {
      {.factor = 8.0, .original_positions = 2048.0},
      {.factor = 40.0, .mscale = 0.707, .mscale_all_dim = 1.0},
      {.factor = 4.0, .beta_fast = 20.0, .beta_slow = 2.0, .mscale = 1.5, .round_range = false},
      {.factor = 1.0},
      // The range begins before the first pair and ends after the last.
      {.factor = 3.0, .original_positions = 20.0, .beta_fast = 5.0, .beta_slow = 1e-4}};
  for (const YarnForm& yarn : forms) {
    const RotaryTable table =
        make_rotary_table(5, kDim, kBase, DType::Double, kCpu, {.yarn = yarn});
    double low = turns_at(yarn.beta_fast, yarn.original_positions);
    double high = turns_at(yarn.beta_slow, yarn.original_positions);
    if (yarn.round_range) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = low < 0.0 ? 0.0 : low;
    high = high > kDim - 1 ? kDim - 1 : high;
    const double log_factor = yarn.factor > 1.0 ? std::log(yarn.factor) : 0.0;
    const double magnitude =
        (0.1 * yarn.mscale * log_factor + 1.0) / (0.1 * yarn.mscale_all_dim * log_factor + 1.0);
    int kept = 0, divided = 0, mixed = 0;
    for (std::int64_t i = 0; i < kDim / 2; ++i) {
      const double frequency = 1.0 / std::pow(kBase, 2.0 * static_cast<double>(i) / kDim);
      const auto at = static_cast<double>(i);
      double expected = 0.0;
      if (at <= low) {
        expected = frequency;
        ++kept;
      } else if (at >= high) {
        expected = frequency / yarn.factor;
        ++divided;
      } else {
        const double share = (at - low) / (high - low);
        expected = share * frequency / yarn.factor + (1.0 - share) * frequency;
        ++mixed;
      }
      EXPECT_NEAR(angle_of(table, 1, i), expected, 1e-14) << yarn.factor << " pair " << i;
      for (const std::int64_t p : {0, 1, 4}) {
        const double c = table.cos[p][i].item().toDouble(), s = table.sin[p][i].item().toDouble();
        EXPECT_NEAR(std::hypot(c, s), magnitude, 1e-14);
      }
    }
    EXPECT_GT(kept, 0);
    EXPECT_GT(mixed, 0);
    EXPECT_EQ(divided > 0, yarn.original_positions > 20.0);
  }
  // Published: DeepSeek-V2's 40 over 4096 positions.
  const RotaryTable published =
      make_rotary_table(2, 64, 10000.0, DType::Double, kCpu, {.yarn = YarnForm{.factor = 40.0}});
  EXPECT_NEAR(angle_of(published, 1, 10), std::pow(10000.0, -20.0 / 64.0), 1e-14);
  EXPECT_NEAR(angle_of(published, 1, 23), std::pow(10000.0, -46.0 / 64.0) / 40.0, 1e-14);
  EXPECT_NEAR(
      std::hypot(published.cos[1][0].item().toDouble(), published.sin[1][0].item().toDouble()),
      1.3688879454113936, 1e-13);
  EXPECT_THROW((void)make_rotary_table(2, 64, 1.0, DType::Double, kCpu, {.yarn = YarnForm{}}),
               Error);
  EXPECT_THROW((void)make_rotary_table(2, 64, 1e4, DType::Double, kCpu,
                                       {.yarn = YarnForm{.beta_fast = 1.0, .beta_slow = 1.0}}),
               Error);
}

// The gradient of a rotation that also stretches.
// Each section of the pairs by its own axis, forward and backward, against the plain rotation.
TEST(Rotary, ByAxes) {
  const RotaryTable table = make_rotary_table(9, 8, 100.0, DType::Double);
  const Tensor x = testing::leaf(testing::normal({3, 2, 8}, 1));
  const Tensor axes =
      tensor::from_vector(std::vector<std::int64_t>{0, 7, 3, 8, 2, 2, 5, 5, 1}).view({3, 3});
  const Tensor y = rotary_by_axes(x, table, axes, {1, 2, 1});
  const std::vector<std::size_t> axis_of_pair = {0, 1, 1, 2};
  const Tensor g = testing::normal({3, 2, 8}, 2);
  run_backward(y, g);
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t n = 0; n < 2; ++n) {
      for (std::int64_t i = 0; i < 4; ++i) {
        const auto at = [&](const Tensor& of, std::int64_t channel) {
          return of[t][n][channel].item<double>();
        };
        const auto axis = static_cast<std::int64_t>(axis_of_pair[static_cast<std::size_t>(i)]);
        const double angle = axes[t][axis].item<double>() * std::pow(100.0, -i / 4.0);
        const double c = std::cos(angle), s = std::sin(angle);
        EXPECT_NEAR(at(y, i), c * at(x, i) - s * at(x, i + 4), 1e-14);
        EXPECT_NEAR(at(y, i + 4), c * at(x, i + 4) + s * at(x, i), 1e-14);
        EXPECT_NEAR(at(x.grad(), i), c * at(g, i) + s * at(g, i + 4), 1e-14);
        EXPECT_NEAR(at(x.grad(), i + 4), c * at(g, i + 4) - s * at(g, i), 1e-14);
      }
    }
  }
  EXPECT_THROW(static_cast<void>(rotary_by_axes(x, table, axes, {1, 2, 2})), Error);
  EXPECT_THROW(static_cast<void>(rotary_by_axes(x, table, axes.add(1), {1, 2, 1})), Error);
}

TEST(Rotary, YarnGradientIsTheTranspose) {
  const RotaryTable table =
      make_rotary_table(9, 8, 100.0, DType::Double, kCpu,
                        {.yarn = YarnForm{.factor = 8.0, .original_positions = 64}});
  const SequenceLayout layout({.boundaries = {0, 9}, .positions = {0, 1, 2, 3, 4, 5, 6, 7, 8}});
  const Tensor x = normal({9, 2, 10}, 1).set_requires_grad(true), dy = normal({9, 2, 10}, 2);
  run_backward(rotary(x, table, layout), dy);
  const Tensor other = normal({9, 2, 10}, 3);
  const double forward = rotary(other, table, layout).mul(dy).sum().item<double>();
  EXPECT_NEAR(other.mul(x.grad()).sum().item<double>(), forward, 1e-12);
}

// A weight w that is used as 1 + w gives what the weight 1 + w gives, and the same gradient.
// Of the sum, the norm and, in fp32, every gradient; in bf16 the gradient is rounded once less.
TEST(Norm, WithAnAdditionHasTheBitsOfTwoOps) {
  using testing::TestWeight;
  for (const DType dtype : {DType::Float, DType::BFloat16}) {
    for (const bool bias : {false, true}) {
      for (const std::int64_t h : {24, 33}) {
        const auto run = [&](bool one_pass) {
          const Tensor x = testing::leaf(normal({37, h}, 1).to(dtype)),
                       delta = testing::leaf(normal({37, h}, 2).to(dtype));
          TestWeight w(normal({h}, 3).to(dtype), DType::Float),
              b(normal({h}, 4).to(dtype), DType::Float);
          const AddedNorm out = testing::added_norm(one_pass, bias, x, delta, w, b);
          const Tensor both = out.sum_th.mul(normal({37, h}, 5).to(dtype))
                                  .add(out.norm_th.mul(normal({37, h}, 6).to(dtype)));
          run_backward(both, tensor::ones({37, h}, dtype));
          std::vector<Tensor> results = {out.sum_th.detach(), out.norm_th.detach(), w.grad(),
                                         x.grad(), delta.grad()};
          if (bias) results.push_back(b.grad());
          return results;
        };
        const std::vector<Tensor> one = run(true), two = run(false);
        for (std::size_t i = 0; i < one.size(); ++i) {
          if (dtype == DType::Float || i < 3) {
            EXPECT_TRUE(testing::bit_equal(one[i], two[i])) << "result " << i << ", h " << h;
          } else {
            testing::expect_close(one[i], two[i], 0.008, "result " + std::to_string(i));
          }
        }
      }
    }
  }
}

// Gradients that reach only one of the two outputs, and inputs that want none.
TEST(Norm, WithAnAdditionTakesMissingGradients) {
  using testing::TestWeight;
  const Tensor g = normal({5, 8}, 9, DType::Float);
  TestWeight w(normal({8}, 3, DType::Float));
  const Tensor x = testing::leaf(normal({5, 8}, 1, DType::Float));
  const Tensor delta = normal({5, 8}, 2, DType::Float);
  run_backward(add_rms_norm(x, delta, w, 1e-5, DType::Float).sum_th, g);
  EXPECT_TRUE(testing::bit_equal(x.grad(), g));
  EXPECT_FALSE(delta.grad().defined());
  const Tensor y = testing::leaf(normal({5, 8}, 1, DType::Float));
  run_backward(add_rms_norm(y, delta, w, 1e-5, DType::Float).norm_th, g);
  const Tensor z = testing::leaf(normal({5, 8}, 1, DType::Float).add(delta));
  run_backward(rms_norm(z, w, 1e-5, DType::Float), g);
  EXPECT_TRUE(testing::bit_equal(y.grad(), z.grad()));
  EXPECT_THROW((void)add_rms_norm(x, normal({5, 7}, 2, DType::Float), w, 1e-5, DType::Float),
               Error);
  EXPECT_THROW((void)add_rms_norm(x, delta.to(DType::BFloat16), w, 1e-5, DType::Float), Error);
}

TEST(Norm, ZeroCentredWeights) {
  for (const bool has_bias : {false, true}) {
    const Tensor dy = normal({5, 12}, 2), w = normal({12}, 3), b = normal({12}, 4);
    Tensor outputs[2], gradients[2], weight_gradients[2];
    for (const bool centred : {false, true}) {
      const Tensor x = normal({5, 12}, 1).set_requires_grad(true);
      TestWeight weight(centred ? w : w.add(1.0)), bias(b);
      const Tensor y = has_bias ? layer_norm(x, weight, bias, 1e-5, DType::Double, {}, centred)
                                : rms_norm(x, weight, 1e-5, DType::Double, {}, centred);
      run_backward(y, dy);
      outputs[centred] = y.detach();
      gradients[centred] = x.grad();
      weight_gradients[centred] = weight.grad();
    }
    expect_close(outputs[1], outputs[0], 1e-14, "output");
    expect_close(gradients[1], gradients[0], 1e-13, "gradient of x");
    expect_close(weight_gradients[1], weight_gradients[0], 1e-14, "gradient of the weight");
  }
}

}  // namespace
}  // namespace pentatron::ops
