// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string>

#include "pentatron/ops/distillation.h"
#include "pentatron/ops/testing.h"

// The divergence of two models over two unequal slices of the vocabulary with padding, against the
// library's plain functions in fp64: one check for both devices.
namespace pentatron::ops::testing {

struct DivergenceCase {
  DType dtype = DType::Double;
  double tolerance = 0;
  double gradient_tolerance = 0;
  double temperature = 1.0;
  LossTarget target = {};
};

inline void expect_plain_divergence(const DivergenceCase& c, Device device) {
  constexpr std::int64_t kRows = 6, kVocab = 2501, kLeft = 1600, kPadding = 27;
  constexpr std::int64_t kRight = kVocab - kLeft;
  const DType statistics = c.dtype == DType::Double ? DType::Double : DType::Float;
  const Tensor student = normal({kRows, kVocab}, 1, DType::Double, 3.0).to(c.dtype);
  const Tensor teacher = normal({kRows, kVocab}, 2, DType::Double, 2.0).to(c.dtype);
  const Tensor labels =
      tensor::from_vector(std::vector<std::int64_t>{0, 1599, 1600, 2500, 77, 1601});
  const Tensor weight = normal({kRows}, 3).abs(), plain_weight = normal({kRows}, 4).abs();
  weight[4] = 0.0;
  plain_weight[2] = 0.0;

  const Tensor x = leaf(student.to(DType::Double));
  const Tensor log_p = x.div(c.temperature).log_softmax(-1);
  const Tensor log_q = teacher.to(DType::Double).div(c.temperature).log_softmax(-1);
  const Tensor divergence = log_q.exp().mul(log_q.sub(log_p)).sum(1);
  const Tensor log_softmax = x.log_softmax(-1);
  const Tensor nll = log_softmax.gather(1, labels.unsqueeze(1))
                         .squeeze(1)
                         .mul(-c.target.label)
                         .sub(log_softmax.sum(1).mul(c.target.every));
  divergence.mul(weight).add(nll.mul(plain_weight)).sum().backward();

  struct Slice {
    LogitPair logits;
    std::int64_t begin;
  };
  const auto slice_of = [&](std::int64_t begin, std::int64_t valid, std::int64_t padding) {
    const auto cut = [&](const Tensor& t, double value) {
      return tensor::cat(
                 {t.narrow(1, begin, valid), tensor::full({kRows, padding}, value, c.dtype)}, 1)
          .contiguous()
          .to(device);
    };
    return Slice{{cut(student, 1e4), cut(teacher, -1e4), valid, c.temperature}, begin};
  };
  const Slice slices[] = {slice_of(0, kLeft, 0), slice_of(kLeft, kRight, kPadding)};
  const auto lse_of = [&](Tensor LogitPair::*of, double temperature) {
    const auto pieces = [&](const Slice& s) {
      return tempered_pieces(s.logits.*of, s.logits.valid_columns, temperature, statistics);
    };
    const SoftmaxPieces a = pieces(slices[0]), b = pieces(slices[1]);
    EXPECT_EQ(a.max_t.scalar_type(), statistics);
    const Tensor max = a.max_t.maximum(b.max_t);
    return sum_exp_below(a, max).add(sum_exp_below(b, max)).log().add(max);
  };
  const LogitNormalisers lse{lse_of(&LogitPair::student_tv, c.temperature),
                             lse_of(&LogitPair::teacher_tv, c.temperature)};
  const Tensor plain_lse = lse_of(&LogitPair::student_tv, 1.0);
  const Tensor sum =
      divergence_terms(slices[0].logits, lse).add(divergence_terms(slices[1].logits, lse));
  expect_close(sum.cpu(), divergence.detach(), c.tolerance, "divergence");
  std::vector<Tensor> gradients;
  for (const Slice& s : slices) {
    divergence_gradient_(s.logits, lse, weight.to(statistics).to(device),
                         {.labels_t = labels.to(device),
                          .log_sum_exp_t = plain_lse,
                          .coefficient_t = plain_weight.to(statistics).to(device),
                          .column_begin = s.begin,
                          .target = c.target});
    gradients.push_back(s.logits.student_tv.cpu().narrow(1, 0, s.logits.valid_columns));
  }
  expect_close(tensor::cat(gradients, 1), x.grad(), c.gradient_tolerance, "gradient");
  EXPECT_TRUE(slices[1].logits.student_tv.narrow(1, kRight, kPadding).eq(0.0).all().item<bool>());
}

inline std::vector<DivergenceCase> divergence_cases() {
  std::vector<DivergenceCase> cases;
  for (const double temperature : {1.0, 2.5}) {
    for (const LossTarget& target : {LossTarget{}, LossTarget{.label = 0.8, .every = 0.2 / 2501}}) {
      cases.push_back({DType::Double, 1e-12, 1e-12, temperature, target});
      // Terms of both signs cancel to a sum some ten times smaller than they are.
      cases.push_back({DType::Float, 2e-6, 2e-6, temperature, target});
      // Gradients are rounded to 8 bits, on GPUs twice.
      cases.push_back({DType::BFloat16, 2e-6, 8e-3, temperature, target});
    }
  }
  return cases;
}

}  // namespace pentatron::ops::testing
