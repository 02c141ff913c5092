// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/narrow_adamw.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "pentatron/base/error.h"
#include "pentatron/base/philox.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/random.h"

namespace pentatron::ops {
namespace {

using testing::bit_equal;
using testing::normal;

constexpr std::uint64_t kSeed = 5;
constexpr AdamOptions kOptions{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
constexpr RoundingStreams kStreams{.param = 11, .first = 12, .second = 13};

AdamScalars scalars(double step) {
  return {.lr = tensor::scalar(1e-3, DType::Double),
          .step = tensor::scalar(step, DType::Double),
          .grad_scale = tensor::scalar(0.7, DType::Double)};
}

// Rows and columns of a logical matrix.
struct State {
  Tensor param, first, second, grad;
};
State make_state(const Shape& shape, DType param, DType first, DType second, DType grad) {
  return {normal(shape, 1, param), normal(shape, 2, first, 0.1),
          normal(shape, 3, DType::Float, 0.1).square().to(second), normal(shape, 4, grad)};
}

// The box of a state from (row, column) on, flat; `begin` elements of it left out at the front.
NarrowSegment segment_of(const State& s, const ElementPlace& place) {
  return {.update = {.param = s.param.view({-1}),
                     .grad = s.grad.view({-1}),
                     .first = s.first.view({-1}),
                     .second = s.second.view({-1})},
          .place = place,
          .streams = kStreams};
}
ElementPlace whole(const Shape& shape) { return {.width = shape[1], .logical_width = shape[1]}; }

// By hand: one element after the other in fp32, and the bits of the draw added before the lower
// half is dropped.
std::uint16_t rounded(float x, std::uint32_t stream, std::int64_t element, std::uint64_t step) {
  const std::uint64_t site = make_site(kSeed, "stochastic_rounding").key;
  const PhiloxDraws draws = philox_draws(philox4x32_10(
      {{static_cast<std::uint32_t>(element / 8), stream, static_cast<std::uint32_t>(step), 0}},
      {{static_cast<std::uint32_t>(site), static_cast<std::uint32_t>(site >> 32)}}));
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x) + draws.v[element % 8]) >> 16);
}

TEST(NarrowAdamW, EqualsFp32AndTheRoundingOfEachElement) {
  const Shape shape{13, 29};
  const State start =
      make_state(shape, DType::BFloat16, DType::BFloat16, DType::BFloat16, DType::BFloat16);
  const Tensor p = start.param.to(DType::Float), m = start.first.to(DType::Float),
               v = start.second.to(DType::Float);
  const AdamScalars now = scalars(3);
  const NarrowSegment segment = segment_of(start, whole(shape));
  adamw_step(p.view({-1}), start.grad.view({-1}), m.view({-1}), v.view({-1}), now, kOptions);
  narrow_adamw_step({&segment, 1}, now, kOptions, kSeed);
  const auto check = [&](const Tensor& kept, const Tensor& wide, std::uint32_t stream) {
    const auto* bits = static_cast<const std::uint16_t*>(kept.const_data_ptr());
    const float* values = wide.const_data_ptr<float>();
    for (std::int64_t i = 0; i < wide.numel(); ++i) {
      ASSERT_EQ(bits[i], rounded(values[i], stream, i, 3)) << i;
    }
  };
  check(start.param, p, kStreams.param);
  check(start.first, m, kStreams.first);
  check(start.second, v, kStreams.second);
}

// Every mix of dtypes, against the formula in fp64: at most one step of bf16 away.
TEST(NarrowAdamW, IsNearTheFormulaInFp64) {
  const Shape shape{9, 31};
  const DType kinds[] = {DType::Float, DType::BFloat16};
  for (const DType param : kinds) {
    for (const DType first : kinds) {
      for (const DType second : kinds) {
        for (const DType grad : kinds) {
          const State s = make_state(shape, param, first, second, grad);
          const auto wide = [](const Tensor& t) { return t.to(DType::Double).view({-1}); };
          const Tensor p = wide(s.param), m = wide(s.first), v = wide(s.second);
          adamw_step(p, wide(s.grad), m, v, scalars(4), kOptions);
          const NarrowSegment segment = segment_of(s, whole(shape));
          narrow_adamw_step({&segment, 1}, scalars(4), kOptions, kSeed);
          const auto check = [&](const Tensor& kept, const Tensor& exact) {
            const double share = kept.scalar_type() == DType::BFloat16 ? 1.0 / 128 : 1e-6;
            const Tensor off = wide(kept).sub(exact).abs();
            // Terms that cancel leave fp32's rounding of the largest.
            const double rounding = 1e-6 * exact.abs().max().item<double>();
            EXPECT_TRUE(off.le(exact.abs().mul(share).add(rounding)).all().item<bool>());
          };
          check(s.param, p);
          check(s.first, m);
          check(s.second, v);
        }
      }
    }
  }
}

// A thousand changes, each a hundredth of a step of bf16: to nearest none would be seen.
TEST(NarrowAdamW, SmallChangesAreKeptOnAverage) {
  constexpr std::int64_t kN = 4096;
  State s{tensor::full({1, kN}, 1.0, DType::BFloat16), tensor::zeros({1, kN}, DType::Float),
          tensor::zeros({1, kN}, DType::Float), tensor::ones({1, kN}, DType::Float)};
  const NarrowSegment segment = segment_of(s, whole({1, kN}));
  AdamScalars now = scalars(1);
  now.lr = tensor::scalar(1.0 / 128 / 100, DType::Double);
  constexpr int kSteps = 1000;
  for (int step = 1; step <= kSteps; ++step) {
    now.step = tensor::scalar(step, DType::Double);
    narrow_adamw_step({&segment, 1}, now, {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, kSeed);
  }
  // Adam's update of a constant gradient is the learning rate.
  const double expected = 1.0 - kSteps / 128.0 / 100;
  EXPECT_NEAR(s.param.to(DType::Double).mean().item<double>(), expected, 1e-3);
  EXPECT_EQ(Tensor(tensor::full({1}, 1.0 - 1.0 / 128 / 100, DType::BFloat16)).item<double>(), 1.0);
}

// Rows, columns and ranges of them, on as many ranks as one likes.
TEST(NarrowAdamW, CutsDoNotChangeABit) {
  const Shape shape{40, 52};
  const auto fresh = [&] {
    return make_state(shape, DType::BFloat16, DType::BFloat16, DType::BFloat16, DType::BFloat16);
  };
  const State joint = fresh();
  const NarrowSegment one = segment_of(joint, whole(shape));
  narrow_adamw_step({&one, 1}, scalars(2), kOptions, kSeed);
  std::mt19937 random(3);
  for (const std::int64_t columns : {52, 26, 13, 4}) {
    const State cut = fresh();
    for (std::int64_t column = 0; column < 52; column += columns) {
      const auto box = [&](const Tensor& t) {
        return t.narrow(0, 8, 32).narrow(1, column, columns).reshape({-1}).clone();
      };
      State local{box(cut.param), box(cut.first), box(cut.second), box(cut.grad)};
      for (std::int64_t at = 0; at < 32 * columns;) {
        const std::int64_t n = std::min<std::int64_t>(32 * columns - at, 1 + random() % 300);
        const auto range = [&](const Tensor& t) { return t.narrow(0, at, n); };
        NarrowSegment segment = segment_of(
            {range(local.param), range(local.first), range(local.second), range(local.grad)},
            {.first = at,
             .width = columns,
             .logical_width = 52,
             .row_offset = 8,
             .column_offset = column});
        narrow_adamw_step({&segment, 1}, scalars(2), kOptions, kSeed);
        at += n;
      }
      const auto expected = [&](const Tensor& t) {
        return t.narrow(0, 8, 32).narrow(1, column, columns).reshape({-1});
      };
      EXPECT_TRUE(bit_equal(local.param, expected(joint.param))) << columns;
      EXPECT_TRUE(bit_equal(local.first, expected(joint.first))) << columns;
      EXPECT_TRUE(bit_equal(local.second, expected(joint.second))) << columns;
    }
  }
}

TEST(NarrowAdamW, SeedStepAndStreamsCount) {
  const Shape shape{8, 64};
  const auto after = [&](std::uint64_t seed, RoundingStreams streams) {
    const State s =
        make_state(shape, DType::BFloat16, DType::BFloat16, DType::BFloat16, DType::Float);
    NarrowSegment segment = segment_of(s, whole(shape));
    segment.streams = streams;
    narrow_adamw_step({&segment, 1}, scalars(2), kOptions, seed);
    return s;
  };
  const State usual = after(kSeed, kStreams);
  EXPECT_TRUE(bit_equal(after(kSeed, kStreams).param, usual.param));
  EXPECT_FALSE(bit_equal(after(kSeed + 1, kStreams).param, usual.param));
  const State other = after(kSeed, {.param = 21, .first = 12, .second = 13});
  EXPECT_FALSE(bit_equal(other.param, usual.param));
  EXPECT_TRUE(bit_equal(other.second, usual.second));
}

TEST(NarrowAdamW, ASkippedStepChangesNothingAndOthersAreRefused) {
  const Shape shape{2, 8};
  const State s =
      make_state(shape, DType::BFloat16, DType::Float, DType::BFloat16, DType::BFloat16);
  const State before{s.param.clone(), s.first.clone(), s.second.clone(), s.grad};
  NarrowSegment segment = segment_of(s, whole(shape));
  AdamScalars now = scalars(1);
  now.skip = tensor::scalar(1, DType::Double);
  narrow_adamw_step({&segment, 1}, now, kOptions, kSeed);
  EXPECT_TRUE(bit_equal(s.param, before.param));
  EXPECT_TRUE(bit_equal(s.first, before.first));
  EXPECT_TRUE(bit_equal(s.second, before.second));
  NarrowSegment wide = segment;
  wide.update.first = s.first.view({-1}).to(DType::Double);
  EXPECT_THROW(narrow_adamw_step({&wide, 1}, scalars(1), kOptions, kSeed), Error);
  NarrowSegment far = segment;
  far.place.row_offset = std::int64_t{1} << 33;
  EXPECT_THROW(narrow_adamw_step({&far, 1}, scalars(1), kOptions, kSeed), Error);
}

}  // namespace
}  // namespace pentatron::ops
