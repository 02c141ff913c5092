// SPDX-License-Identifier: Apache-2.0
// Every differentiable op on the CPU against its plain fp64 reference, in fp64, fp32 and bf16, and
// against finite differences.
#include "pentatron/ops/test_cases.h"

namespace pentatron::ops {
namespace {

using testing::normal;
using testing::OpCase;
using testing::Tensors;
using testing::TestWeight;

class EveryOp : public ::testing::TestWithParam<OpCase> {};

TEST_P(EveryOp, EqualsReferenceInFp64) {
  testing::compare(GetParam(), DType::Double, DType::Double, 1e-12);
}
TEST_P(EveryOp, EqualsReferenceInFp32) {
  testing::compare(GetParam(), DType::Float, DType::Float, 3e-6);
}
// bf16 has 8 bits: outputs round at 2^-9, and backward reads rounded outputs.
TEST_P(EveryOp, EqualsReferenceInBf16) {
  testing::compare(GetParam(), DType::BFloat16, DType::Float, 0.02);
}
TEST_P(EveryOp, WritesBf16Slots) {
  testing::compare(GetParam(), DType::BFloat16, DType::BFloat16, 0.02);
}

TEST_P(EveryOp, EqualsFiniteDifferences) {
  const OpCase& c = GetParam();
  Tensors values;
  std::uint64_t seed = 300;
  for (const Shape& shape : c.inputs) values.push_back(normal(shape, seed++));
  for (const Shape& shape : c.weights) values.push_back(normal(shape, seed++));
  const std::size_t num_inputs = c.inputs.size();
  const auto run = [&](bool with_grad, Tensors& grads) {
    Tensors inputs;
    std::vector<TestWeight> weights;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i < num_inputs) {
        inputs.push_back(with_grad ? testing::leaf(values[i]) : values[i]);
      } else {
        weights.emplace_back(values[i]);
        weights.back().set_trainable(with_grad);
      }
    }
    const Tensor out = c.op(inputs, weights);
    const Tensor g = normal(tensor::shape_of(out), 8);
    if (with_grad) {
      run_backward(out, g);
      for (const Tensor& input : inputs) grads.push_back(input.grad());
      for (const TestWeight& weight : weights) grads.push_back(weight.grad());
    }
    return out.detach().mul(g).sum().item<double>();
  };
  Tensors grads, unused;
  (void)run(true, grads);
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto* data = values[i].data_ptr<double>();
    const std::int64_t stride = std::max<std::int64_t>(1, values[i].numel() / 7);
    const double largest = grads[i].abs().max().item<double>();
    for (std::int64_t e = 0; e < values[i].numel(); e += stride) {
      const double kept = data[e];
      data[e] = kept + kStep;
      const double above = run(false, unused);
      data[e] = kept - kStep;
      const double below = run(false, unused);
      data[e] = kept;
      EXPECT_NEAR(grads[i].contiguous().data_ptr<double>()[e], (above - below) / (2.0 * kStep),
                  1e-6 * largest)
          << c.name << ", argument " << i << ", element " << e;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, EveryOp, ::testing::ValuesIn(testing::weight_cases()),
                         testing::case_name);
INSTANTIATE_TEST_SUITE_P(Plain, EveryOp, ::testing::ValuesIn(testing::plain_cases()),
                         testing::case_name);
INSTANTIATE_TEST_SUITE_P(Forms, EveryOp, ::testing::ValuesIn(testing::attention_form_cases()),
                         testing::case_name);
INSTANTIATE_TEST_SUITE_P(Dropout, EveryOp, ::testing::ValuesIn(testing::attention_dropout_cases()),
                         testing::case_name);

class OpShapes : public ::testing::TestWithParam<OpCase> {};

TEST_P(OpShapes, EqualReference) {
  testing::compare(GetParam(), DType::Double, DType::Double, 1e-12);
  testing::compare(GetParam(), DType::Float, DType::Float, 3e-6);
  testing::compare(GetParam(), DType::BFloat16, DType::Float, 0.02);
}

INSTANTIATE_TEST_SUITE_P(Shapes, OpShapes, ::testing::ValuesIn(testing::shape_cases()),
                         testing::case_name);

}  // namespace
}  // namespace pentatron::ops
