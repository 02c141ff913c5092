// SPDX-License-Identifier: Apache-2.0
// Variants of ops against what defines them: rotary tables, rotations of neighbours, zero-centred
// weights.
#include <cmath>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/norm.h"
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

// A weight w that is used as 1 + w gives what the weight 1 + w gives, and the same gradient.
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
