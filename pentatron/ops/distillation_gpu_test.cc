// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "pentatron/ops/distillation_test_support.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/gpu_test_support.h"

namespace pentatron::ops {
namespace {

using testing::expect_close;
using testing::normal;

const Device kGpu("cuda:0");

TEST(DistillationOnGpu, SlicesEqualThePlainDivergence) {
  PENTATRON_NEEDS_GPUS(1);
  for (const testing::DivergenceCase& c : testing::divergence_cases()) {
    testing::expect_plain_divergence(c, kGpu);
  }
}

// More rows than one piece holds: each piece finds its own.
TEST(DistillationOnGpu, ManyPiecesEqualTheCpu) {
  PENTATRON_NEEDS_GPUS(1);
  constexpr std::int64_t kRows = 300, kVocab = 128256, kValid = 128000;
  constexpr double kTemperature = 2.0;
  const Tensor student = normal({kRows, kVocab}, 1, DType::Float, 3.0).to(DType::BFloat16);
  const Tensor teacher = normal({kRows, kVocab}, 2, DType::Float, 3.0).to(DType::BFloat16);
  const Tensor labels = tensor::arange(kRows, DType::Long).mul(400);
  const Tensor weight = normal({kRows}, 3, DType::Float).abs();
  const auto run = [&](Device device) {
    const LogitPair pair{student.clone().to(device), teacher.to(device), kValid, kTemperature};
    const auto lse = [&](const Tensor& logits, double temperature) {
      const SoftmaxPieces p = tempered_pieces(logits, kValid, temperature, DType::Float);
      return p.max_t.add(p.sum_exp_t.log());
    };
    const LogitNormalisers both{lse(pair.student_tv, kTemperature),
                                lse(pair.teacher_tv, kTemperature)};
    const Tensor plain = lse(pair.student_tv, 1.0), terms = divergence_terms(pair, both);
    divergence_gradient_(pair, both, weight.to(device),
                         {.labels_t = labels.to(device),
                          .log_sum_exp_t = plain,
                          .coefficient_t = weight.to(device)});
    return std::pair{terms.cpu(), pair.student_tv.cpu()};
  };
  const auto [terms, gradient] = run(kGpu);
  const auto [expected_terms, expected_gradient] = run(kCpu);
  expect_close(terms, expected_terms, 1e-5, "divergence");
  expect_close(gradient, expected_gradient, 8e-3, "gradient");
}

}  // namespace
}  // namespace pentatron::ops
