// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/distillation.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/distillation_test_support.h"
#include "pentatron/ops/testing.h"

namespace pentatron::ops {
namespace {

using testing::expect_close;
using testing::normal;

TEST(Distillation, SlicesEqualThePlainDivergence) {
  for (const testing::DivergenceCase& c : testing::divergence_cases()) {
    testing::expect_plain_divergence(c, kCpu);
  }
}

TEST(Distillation, EqualModelsHaveNoDivergenceAndNoGradient) {
  const Tensor logits = normal({3, 130}, 1, DType::Float, 5.0);
  const LogitPair pair{logits.clone(), logits, 130, 1.7};
  const SoftmaxPieces pieces = tempered_pieces(logits, 130, 1.7, DType::Float);
  const Tensor lse = pieces.max_t.add(pieces.sum_exp_t.log());
  EXPECT_TRUE(divergence_terms(pair, {lse, lse}).eq(0.0).all().item<bool>());
  const Tensor zeros = tensor::zeros({3}, DType::Float);
  divergence_gradient_(
      pair, {lse, lse}, tensor::ones({3}, DType::Float),
      {.labels_t = tensor::zeros({3}, DType::Long), .log_sum_exp_t = lse, .coefficient_t = zeros});
  EXPECT_TRUE(pair.student_tv.eq(0.0).all().item<bool>());
}

// What one row is does not depend on threads or on the rows beside it.
TEST(Distillation, RowsHaveTheSameBitsAlone) {
  const Tensor student = normal({40, 1025}, 1, DType::Float, 3.0);
  const Tensor teacher = normal({40, 1025}, 2, DType::Float, 3.0);
  const auto terms = [](const Tensor& s, const Tensor& t) {
    const auto lse = [](const Tensor& x) {
      const SoftmaxPieces p = tempered_pieces(x, 1025, 2.0, DType::Float);
      return p.max_t.add(p.sum_exp_t.log());
    };
    return divergence_terms({s, t, 1025, 2.0}, {lse(s), lse(t)});
  };
  const Tensor all = terms(student, teacher);
  for (const std::int64_t row : {0, 17, 39}) {
    const Tensor one = terms(student.narrow(0, row, 1), teacher.narrow(0, row, 1));
    EXPECT_TRUE(one.equal(all.narrow(0, row, 1))) << row;
  }
}

TEST(Distillation, ShapesThatDoNotFitAreRefused) {
  const Tensor logits = normal({3, 10}, 1, DType::Float);
  const Tensor lse = tensor::zeros({3}, DType::Float);
  EXPECT_THROW(static_cast<void>(tempered_pieces(logits, 11, 1.0, DType::Float)), Error);
  EXPECT_THROW(static_cast<void>(
                   divergence_terms({logits, normal({3, 9}, 1, DType::Float), 9, 1.0}, {lse, lse})),
               Error);
  EXPECT_THROW(static_cast<void>(divergence_terms({logits, logits, 10, 0.0}, {lse, lse})), Error);
  EXPECT_THROW(static_cast<void>(divergence_terms({logits, logits, 10, 1.0},
                                                  {lse, tensor::zeros({2}, DType::Float)})),
               Error);
  EXPECT_THROW(static_cast<void>(hidden_losses(logits, normal({3, 9}, 1, DType::Float),
                                               HiddenLoss::kCosine, DType::Float)),
               Error);
}

class HiddenLosses : public ::testing::TestWithParam<HiddenLoss> {};

TEST_P(HiddenLosses, EqualThePlainDistance) {
  const Tensor target = normal({5, 24}, 2);
  const Tensor weight = normal({5}, 3).abs();
  const auto plain = [&](const Tensor& x) {
    if (GetParam() == HiddenLoss::kMeanSquares) return x.sub(target).pow(2).mean(IntList{1});
    const auto length = [](const Tensor& t) { return t.pow(2).sum(IntList{1}).sqrt(); };
    return x.mul(target).sum(IntList{1}).div(length(x).mul(length(target))).neg().add(1.0);
  };
  const Tensor x = testing::leaf(normal({5, 24}, 1)), y = testing::leaf(x.detach());
  const Tensor expected = plain(x);
  expected.mul(weight).sum().backward();
  const Tensor losses = hidden_losses(y, target, GetParam(), DType::Double);
  expect_close(losses.detach(), expected.detach(), 1e-12, "loss");
  run_backward(losses, weight);
  expect_close(y.grad(), x.grad(), 1e-11, "gradient");
  // Without a graph the same numbers.
  const tensor::NoGrad no_grad;
  EXPECT_TRUE(hidden_losses(y, target, GetParam(), DType::Double).equal(losses.detach()));
}

// A row of zeros has no direction: its distance and gradient are finite.
TEST_P(HiddenLosses, RowsOfZerosAreFinite) {
  const Tensor x = testing::leaf(tensor::zeros({2, 8}, DType::Float));
  const Tensor losses =
      hidden_losses(x, tensor::zeros({2, 8}, DType::Float), GetParam(), DType::Float);
  run_backward(losses, tensor::ones({2}, DType::Float));
  EXPECT_TRUE(losses.detach().isfinite().all().item<bool>());
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Kinds, HiddenLosses,
                         ::testing::Values(HiddenLoss::kCosine, HiddenLoss::kMeanSquares));

}  // namespace
}  // namespace pentatron::ops
