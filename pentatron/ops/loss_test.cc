// SPDX-License-Identifier: Apache-2.0
// The pieces of the vocabulary-parallel cross entropy, put together over two unequal slices with
// padding; peak memory.
#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/cross_entropy.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/memory.h"

namespace pentatron::ops {
namespace {

using testing::expect_close;
using testing::normal;

class CrossEntropy : public ::testing::TestWithParam<std::tuple<DType, DType, double>> {};

// A target that gives something to every id, over two slices with padding, against the library.
TEST_P(CrossEntropy, SmoothedSlicesEqualThePlainLoss) {
  const auto [dtype, statistics, tolerance] = GetParam();
  constexpr std::int64_t kRows = 5, kVocab = 2501, kLeft = 1600, kPadding = 27;
  constexpr LossTarget kTarget{.label = 0.8, .every = 0.2 / kVocab};
  const Tensor logits = normal({kRows, kVocab}, 1, DType::Double, 3.0).to(dtype);
  const Tensor labels = tensor::from_vector(std::vector<std::int64_t>{0, 1599, 1600, 2500, 77});
  const Tensor weight = normal({kRows}, 2).abs();
  const Tensor x = testing::leaf(logits.to(DType::Double));
  const Tensor log_p = x.log_softmax(-1);
  const Tensor plain_t = log_p.gather(1, labels.unsqueeze(1))
                             .squeeze(1)
                             .mul(-kTarget.label)
                             .sub(log_p.sum(1).mul(kTarget.every));
  plain_t.mul(weight).sum().backward();

  const Tensor left = logits.narrow(1, 0, kLeft).contiguous();
  const std::int64_t valid = kVocab - kLeft;
  const Tensor right =
      tensor::cat({logits.narrow(1, kLeft, valid), tensor::full({kRows, kPadding}, 1e4, dtype)}, 1)
          .contiguous();
  const SoftmaxPieces a = softmax_pieces(left, labels, 0, kLeft, statistics, true);
  const SoftmaxPieces b = softmax_pieces(right, labels, kLeft, valid, statistics, true);
  EXPECT_EQ(a.logit_sum_t.scalar_type(), statistics);
  const Tensor max = a.max_t.maximum(b.max_t);
  const Tensor lse = sum_exp_below(a, max).add(sum_exp_below(b, max)).log().add(max);
  const Tensor loss = lse.sub(a.target_logit_t.add(b.target_logit_t).mul(kTarget.label))
                          .sub(a.logit_sum_t.add(b.logit_sum_t).mul(kTarget.every));
  expect_close(loss, plain_t.detach(), tolerance, "loss");
  softmax_gradient_(left, labels, lse, weight.to(statistics), 0, kLeft, kTarget);
  softmax_gradient_(right, labels, lse, weight.to(statistics), kLeft, valid, kTarget);
  const double grad_tolerance = dtype == DType::BFloat16 ? 4e-3 : tolerance;
  expect_close(tensor::cat({left, right.narrow(1, 0, valid)}, 1), x.grad(), grad_tolerance,
               "gradient");
  EXPECT_TRUE(right.narrow(1, valid, kPadding).eq(0.0).all().item<bool>());
}

TEST_P(CrossEntropy, SlicesEqualThePlainLoss) {
  const auto [dtype, statistics, tolerance] = GetParam();
  constexpr std::int64_t kRows = 7, kVocab = 2501, kLeft = 1600;
  const Tensor logits = normal({kRows, kVocab}, 1, DType::Double, 3.0).to(dtype);
  const Tensor labels =
      tensor::from_vector(std::vector<std::int64_t>{0, 1599, 1600, 2500, 77, 1601, 5});
  const Tensor weight = normal({kRows}, 2).abs();
  weight[4] = 0.0;

  // Plain, in fp64.
  const Tensor x = testing::leaf(logits.to(DType::Double));
  const Tensor picked = x.log_softmax(-1).gather(1, labels.unsqueeze(1)).squeeze(1);
  picked.mul(weight).sum().neg().backward();

  // Two ranks: columns [0, 1600) and [1600, 2501) with 27 columns of padding that would win every
  // maximum.
  const Tensor left = logits.narrow(1, 0, kLeft).contiguous();
  const Tensor padding = tensor::full({kRows, 27}, 1e4, dtype);
  const Tensor right =
      tensor::cat({logits.narrow(1, kLeft, kVocab - kLeft), padding}, 1).contiguous();
  const std::int64_t valid = kVocab - kLeft;
  const SoftmaxPieces a = softmax_pieces(left, labels, 0, kLeft, statistics);
  const SoftmaxPieces b = softmax_pieces(right, labels, kLeft, valid, statistics);
  const Tensor max = a.max_t.maximum(b.max_t);
  EXPECT_EQ(max.scalar_type(), statistics);
  const Tensor lse = sum_exp_below(a, max).add(sum_exp_below(b, max)).log().add(max);
  const Tensor loss = lse.sub(a.target_logit_t.add(b.target_logit_t));
  expect_close(loss, picked.detach().neg(), tolerance, "loss");
  softmax_gradient_(left, labels, lse, weight.to(statistics), 0, kLeft);
  softmax_gradient_(right, labels, lse, weight.to(statistics), kLeft, valid);
  const double grad_tolerance = dtype == DType::BFloat16 ? 4e-3 : tolerance;
  expect_close(tensor::cat({left, right.narrow(1, 0, valid)}, 1), x.grad(), grad_tolerance,
               "gradient");
  EXPECT_TRUE(right.narrow(1, valid, 27).eq(0.0).all().item<bool>());
  EXPECT_TRUE(left[4].eq(0.0).all().item<bool>());
}

// Both at once give the bits of one after the other.
TEST_P(CrossEntropy, PiecesWithGradientEqualBothSteps) {
  const auto [dtype, statistics, tolerance] = GetParam();
  constexpr std::int64_t kRows = 5, kColumns = 1040, kValid = 1025;
  const Tensor logits = normal({kRows, kColumns}, 3, DType::Double, 3.0).to(dtype);
  // The last two are on other ranks.
  const Tensor labels = tensor::from_vector(std::vector<std::int64_t>{100, 1124, 600, 7, 1125});
  const Tensor coefficient = normal({kRows}, 4).to(statistics);
  const Tensor first = logits.clone(), second = logits.clone();
  const SoftmaxPieces apart = softmax_pieces(first, labels, 100, kValid, statistics);
  softmax_gradient_(first, labels, apart.max_t.add(apart.sum_exp_t.log()), coefficient, 100,
                    kValid);
  const SoftmaxPieces once =
      softmax_with_gradient_(second, labels, coefficient, 100, kValid, statistics);
  EXPECT_TRUE(once.max_t.equal(apart.max_t));
  EXPECT_TRUE(once.sum_exp_t.equal(apart.sum_exp_t));
  EXPECT_TRUE(once.target_logit_t.equal(apart.target_logit_t));
  // A log-sum-exp in statistics narrower than the logits was rounded on the way.
  if (dtype == DType::Double && statistics == DType::Float) {
    expect_close(second, first, tolerance, "gradient");
  } else {
    EXPECT_TRUE(first.equal(second));
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CrossEntropy,
                         ::testing::Values(std::tuple{DType::Double, DType::Double, 1e-13},
                                           std::tuple{DType::Float, DType::Float, 1e-6},
                                           std::tuple{DType::Float, DType::Double, 1e-7},
                                           std::tuple{DType::Double, DType::Float, 1e-6},
                                           std::tuple{DType::BFloat16, DType::Float, 1e-6}));

TEST(CrossEntropyPieces, RankWithoutColumns) {
  const Tensor logits = tensor::full({3, 4}, 9.0, DType::Float);
  const Tensor labels = tensor::zeros({3}, DType::Long);
  for (const DType statistics : {DType::Float, DType::Double}) {
    const SoftmaxPieces pieces = softmax_pieces(logits, labels, 100, 0, statistics);
    EXPECT_TRUE(tensor::all_finite(pieces.max_t));
    EXPECT_LT(pieces.max_t.max().item<double>(), -1e38);
    EXPECT_EQ(pieces.sum_exp_t.abs().max().item<double>(), 0.0);
    EXPECT_EQ(pieces.target_logit_t.abs().max().item<double>(), 0.0);
    EXPECT_EQ(sum_exp_below(pieces, tensor::full({3}, 50.0, statistics)).abs().max().item<double>(),
              0.0);
  }
  EXPECT_THROW((void)softmax_pieces(logits, labels, 0, 5, DType::Float), Error);
}

TEST(CrossEntropyPieces, ShowNotANumber) {
  const Tensor logits = tensor::zeros({2, 40}, DType::Float);
  logits[1][17] = std::numeric_limits<float>::quiet_NaN();
  const Tensor labels = tensor::zeros({2}, DType::Long);
  const SoftmaxPieces pieces = softmax_pieces(logits, labels, 0, 40, DType::Float);
  EXPECT_TRUE(std::isfinite(pieces.sum_exp_t[0].item<float>()));
  EXPECT_TRUE(std::isnan(pieces.sum_exp_t[1].item<float>()));
}

TEST(Memory, LossStaysWithinTheLogits) {
  for (const DType dtype : {DType::Float, DType::BFloat16}) {
    const Tensor logits = normal({64, 20000}, 1, DType::Float).to(dtype);
    const Tensor labels = tensor::zeros({64}, DType::Long);
    const tensor::MemoryMeter meter;
    const SoftmaxPieces pieces = softmax_pieces(logits, labels, 0, 20000, DType::Float);
    softmax_gradient_(logits, labels, pieces.sum_exp_t.log().add(pieces.max_t),
                      tensor::ones({64}, DType::Float), 0, 20000);
    // Beside the logits themselves: less than a fifth of them.
    EXPECT_LT(meter.peak_bytes(), static_cast<std::int64_t>(logits.nbytes() / 5));
  }
}

TEST(Memory, LinearBackwardMakesNoWeightSizedTemporary) {
  constexpr std::int64_t kIn = 1024, kOut = 2048, kRows = 16;
  constexpr std::int64_t kEighth = kIn * kOut * 4 / 8;
  for (const DType dtype : {DType::Float, DType::BFloat16}) {
    testing::TestWeight weight(normal({kOut, kIn}, 1, dtype, 0.02), DType::Float);
    testing::TestWeight bias(normal({kOut}, 2, dtype), DType::Float);
    const Tensor x = testing::leaf(normal({kRows, kIn}, 3, dtype));
    const Tensor g = normal({kRows, kOut}, 4, dtype);
    WeightGradQueue queue;
    queue.set_postpone(true);
    for (int step = 0; step < 2; ++step) {  // the first overwrites, the second accumulates
      const Tensor y = linear(x, weight, &bias, {.queue = &queue});
      {
        const tensor::MemoryMeter meter;
        run_backward(y, g);
        // bf16 may widen the weight for the input gradient, strip by strip (tensor_test).
        if (dtype == DType::Float) {
          EXPECT_LT(meter.largest_allocation(), kEighth);
        }
      }
      const tensor::MemoryMeter meter;
      queue.drain();
      EXPECT_LT(meter.largest_allocation(), kEighth);
    }
    EXPECT_EQ(weight.writes(), 2);
  }
}

}  // namespace
}  // namespace pentatron::ops
