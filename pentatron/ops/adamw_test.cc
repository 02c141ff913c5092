// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/adamw.h"

#include <random>

#include "pentatron/base/error.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/parallel.h"

namespace pentatron::ops {
namespace {

using testing::bit_equal;
using testing::normal;

AdamScalars scalars(double lr, double step, double grad_scale) {
  return {.lr = tensor::scalar(lr, DType::Double),
          .step = tensor::scalar(step, DType::Double),
          .grad_scale = tensor::scalar(grad_scale, DType::Double)};
}

struct State {
  Tensor param, m, v;
};
State make_state(std::int64_t n, DType dtype) {
  return {normal({n}, 1, dtype), tensor::zeros({n}, dtype), tensor::zeros({n}, dtype)};
}
constexpr AdamOptions kOptions{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

TEST(AdamW, EqualsTheFormulaInFp64) {
  constexpr std::int64_t kN = 1001;
  State s = make_state(kN, DType::Double);
  std::vector<double> p(kN), m(kN, 0.0), v(kN, 0.0);
  std::copy_n(s.param.data_ptr<double>(), kN, p.begin());
  for (int step = 1; step <= 5; ++step) {
    const Tensor grad = normal({kN}, 10 + step);
    const double lr = 0.01 * step;
    adamw_step(s.param, grad, s.m, s.v, scalars(lr, step, 0.5), kOptions);
    for (std::int64_t i = 0; i < kN; ++i) {
      const double g = 0.5 * grad.data_ptr<double>()[i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      p[i] -= lr * (0.1 * p[i] + m[i] / (1.0 - std::pow(0.9, step)) /
                                     (std::sqrt(v[i] / (1.0 - std::pow(0.95, step))) + 1e-8));
    }
  }
  testing::expect_close(s.param, tensor::from_vector(p), 1e-14, "parameters");
  testing::expect_close(s.m, tensor::from_vector(m), 1e-14, "first moment");
  testing::expect_close(s.v, tensor::from_vector(v), 1e-14, "second moment");
}

TEST(AdamW, CutsAndThreadsDoNotChangeABit) {
  constexpr std::int64_t kN = 70001;
  std::mt19937 random(5);
  for (const DType dtype : {DType::Float, DType::Double}) {
    for (const DType grad_dtype : {dtype, DType::BFloat16}) {
      const Tensor grad = normal({kN}, 3, grad_dtype);
      State whole = make_state(kN, dtype), cut = make_state(kN, dtype);
      State sgd_whole = make_state(kN, dtype), sgd_cut = make_state(kN, dtype);
      for (int step = 1; step <= 3; ++step) {
        const AdamScalars now = scalars(1e-3, step, 0.7);
        tensor::set_num_threads(step);
        adamw_step(whole.param, grad, whole.m, whole.v, now, kOptions);
        sgd_step(sgd_whole.param, grad, sgd_whole.m, now, 0.9, 0.01);
        tensor::set_num_threads(1);
        for (std::int64_t at = 0; at < kN;) {
          const std::int64_t n = std::min<std::int64_t>(kN - at, 1 + random() % 9000);
          const auto part = [&](const Tensor& t) { return t.narrow(0, at, n); };
          adamw_step(part(cut.param), part(grad), part(cut.m), part(cut.v), now, kOptions);
          sgd_step(part(sgd_cut.param), part(grad), part(sgd_cut.m), now, 0.9, 0.01);
          at += n;
        }
      }
      EXPECT_TRUE(bit_equal(whole.param, cut.param));
      EXPECT_TRUE(bit_equal(whole.m, cut.m));
      EXPECT_TRUE(bit_equal(whole.v, cut.v));
      EXPECT_TRUE(bit_equal(sgd_whole.param, sgd_cut.param));
      EXPECT_TRUE(bit_equal(sgd_whole.m, sgd_cut.m));
    }
  }
}

// One call over slices of many sizes gives the bits of a call a slice, each with its own decay,
// learning rate and eps.
TEST(AdamW, OneCallOverManySegmentsEqualsACallEach) {
  constexpr double kRates[kNumRateClasses] = {1e-3, 5e-3, 2e-4};
  for (const bool adam : {true, false}) {
    std::vector<State> joint, alone;
    std::vector<Tensor> grads;
    std::vector<UpdateSegment> segments;
    for (const std::int64_t n : {1, 0, 70001, 16384, 5, 33000}) {
      joint.push_back(make_state(n, DType::Float));
      alone.push_back(make_state(n, DType::Float));
      grads.push_back(normal({n}, 3 + static_cast<int>(n % 7), DType::Float));
    }
    for (std::size_t i = 0; i < joint.size(); ++i) {
      segments.push_back({.param = joint[i].param,
                          .grad = grads[i],
                          .first = joint[i].m,
                          .second = adam ? joint[i].v : Tensor(),
                          .decays = i % 2 == 0,
                          .rate = static_cast<RateClass>(i % kNumRateClasses),
                          .eps_factor = i == 4 ? 0.25 : 1.0});
    }
    for (int step = 1; step <= 3; ++step) {
      AdamScalars now = scalars(kRates[0], step, 0.7);
      now.decoupled_lr = tensor::scalar(kRates[1], DType::Double);
      now.width_lr = tensor::scalar(kRates[2], DType::Double);
      tensor::set_num_threads(step);
      if (adam) {
        adamw_step(segments, now, kOptions);
      } else {
        sgd_step(segments, now, 0.9, 0.1);
      }
      tensor::set_num_threads(1);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        AdamScalars own = scalars(kRates[i % kNumRateClasses], step, 0.7);
        AdamOptions options = kOptions;
        if (i == 4) options.eps *= 0.25;
        if (i % 2 != 0) options.weight_decay = 0;
        if (adam) {
          adamw_step(alone[i].param, grads[i], alone[i].m, alone[i].v, own, options);
        } else {
          sgd_step(alone[i].param, grads[i], alone[i].m, own, 0.9, options.weight_decay);
        }
      }
    }
    for (std::size_t i = 0; i < joint.size(); ++i) {
      EXPECT_TRUE(bit_equal(joint[i].param, alone[i].param)) << i;
      EXPECT_TRUE(bit_equal(joint[i].m, alone[i].m)) << i;
      EXPECT_TRUE(bit_equal(joint[i].v, alone[i].v)) << i;
    }
  }
}

TEST(AdamW, RefusesSegmentsOfTwoDtypes) {
  State a = make_state(8, DType::Float), b = make_state(8, DType::Double);
  const Tensor grad = normal({8}, 2, DType::Float);
  const std::vector<UpdateSegment> segments = {
      {.param = a.param, .grad = grad, .first = a.m, .second = a.v},
      {.param = b.param, .grad = grad, .first = b.m, .second = b.v}};
  EXPECT_THROW(adamw_step(segments, scalars(1, 1, 1), kOptions), Error);
}

TEST(Sgd, EqualsTheFormula) {
  State s = make_state(33, DType::Double);
  Tensor p = s.param.clone(), m = s.m.clone();
  for (int step = 1; step <= 3; ++step) {
    const Tensor grad = normal({33}, 20 + step);
    sgd_step(s.param, grad, s.m, scalars(0.1, step, 2.0), 0.9, 0.01);
    m = m.mul(0.9).add(grad.mul(2.0).add(p.mul(0.01)));
    p = p.sub(m.mul(0.1));
  }
  testing::expect_close(s.param, p, 1e-14, "with momentum");
  Tensor plain = normal({33}, 1);
  const Tensor grad = normal({33}, 2), expected = plain.sub(grad.mul(0.1));
  sgd_step(plain, grad, Tensor(),
           {.lr = tensor::scalar(0.1, DType::Double), .step = {}, .grad_scale = {}}, 0.0, 0.0);
  testing::expect_close(plain, expected, 1e-15, "without momentum");
}

TEST(Optimizer, RefusesSlicesThatDoNotMatch) {
  State s = make_state(8, DType::Float);
  const Tensor short_grad = normal({7}, 2, DType::Float);
  EXPECT_THROW(adamw_step(s.param, short_grad, s.m, s.v, scalars(1, 1, 1), kOptions), Error);
  const Tensor grad = normal({8}, 2, DType::Float);
  EXPECT_THROW(adamw_step(s.param, grad, s.m, s.v, scalars(1, 0, 1), kOptions), Error);
  EXPECT_THROW(sgd_step(s.param, grad, Tensor(), scalars(1, 1, 1), 0.9, 0.0), Error);
}

// A device flag decides, so that the host need not know: even bad scalars then do no harm.
TEST(Optimizer, SkipFlagLeavesEverythingUntouched) {
  State s = make_state(100, DType::Float);
  const Tensor grad = normal({100}, 2, DType::Float);
  AdamScalars now = scalars(0.1, 1, 1);
  adamw_step(s.param, grad, s.m, s.v, now, kOptions);
  const State before{s.param.clone(), s.m.clone(), s.v.clone()};
  const Tensor bad = tensor::full({100}, std::nan(""), DType::Float);
  now = scalars(std::nan(""), 0, std::nan(""));
  now.skip = tensor::scalar(1, DType::Double);
  adamw_step(s.param, bad, s.m, s.v, now, kOptions);
  sgd_step(s.param, bad, s.m, now, 0.9, 0.1);
  EXPECT_TRUE(bit_equal(s.param, before.param));
  EXPECT_TRUE(bit_equal(s.m, before.m));
  EXPECT_TRUE(bit_equal(s.v, before.v));
  now = scalars(0.1, 2, 1);
  now.skip = tensor::scalar(0, DType::Double);
  adamw_step(s.param, grad, s.m, s.v, now, kOptions);
  EXPECT_FALSE(bit_equal(s.param, before.param));
}

TEST(Optimizer, WeightDecayOfTheStepMultipliesThatOfTheOptions) {
  for (const bool adam : {true, false}) {
    State a = make_state(50, DType::Float);
    State b = make_state(50, DType::Float);
    const Tensor grad = normal({50}, 2, DType::Float);
    AdamScalars now = scalars(0.1, 1, 1);
    AdamOptions options = kOptions;
    const auto step = [&](State& s) {
      if (adam) {
        adamw_step(s.param, grad, s.m, s.v, now, options);
      } else {
        sgd_step(s.param, grad, s.m, now, 0.9, options.weight_decay);
      }
    };
    options.weight_decay = 0.25;
    step(a);
    options.weight_decay = 0.5;
    now.weight_decay = tensor::scalar(0.5, DType::Double);
    step(b);
    EXPECT_TRUE(bit_equal(a.param, b.param));
    now.weight_decay = tensor::scalar(0.75, DType::Double);
    step(b);
    options.weight_decay = 0.5;
    now.weight_decay = Tensor();
    step(a);
    EXPECT_FALSE(bit_equal(a.param, b.param));
  }
}

TEST(SumOfSquares, IsExactAndIndependentOfThreads) {
  const Tensor x = normal({100003}, 1, DType::Float);
  const double expected = x.to(DType::Double).pow(2).sum().item<double>();
  tensor::set_num_threads(1);
  const double one = sum_of_squares(x).item<double>();
  tensor::set_num_threads(3);
  EXPECT_EQ(sum_of_squares(x).item<double>(), one);
  tensor::set_num_threads(1);
  EXPECT_NEAR(one, expected, 1e-12 * expected);
  EXPECT_EQ(sum_of_squares(tensor::zeros({0}, DType::Double)).item<double>(), 0.0);
  EXPECT_EQ(sum_of_squares(tensor::full({5}, 2.0, DType::BFloat16)).item<double>(), 20.0);
}

}  // namespace
}  // namespace pentatron::ops
