// SPDX-License-Identifier: Apache-2.0
// A linear map and its activation as one op against the two ops: equal bits. EveryOp.* holds both
// to fp64.
#include <gtest/gtest.h>

#include "pentatron/ops/activation.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/rebuild_activations.h"

namespace pentatron::ops {
namespace {

using namespace testing;  // NOLINT: test vocabulary

constexpr std::int64_t kRows = 33, kIn = 16, kOut = 40;

struct Layer {
  explicit Layer(DType dtype)
      : weight{normal({kOut, kIn}, 1).to(dtype), DType::Float},
        bias{normal({kOut}, 2).to(dtype), DType::Float},
        x(leaf(normal({kRows, kIn}, 3).to(dtype))),
        dy(normal({kRows, kOut}, 4).to(dtype)) {}

  Tensor forward(Activation kind, bool one_op, bool with_bias, const Scope& scope) {
    auto projection = std::make_unique<Projection>(weight, with_bias ? &bias : nullptr, scope);
    if (one_op) return linear_activation(x, std::move(projection), kind, scope);
    return activation(kind, linear(x, std::move(projection)), scope);
  }

  TestWeight weight, bias;
  Tensor x, dy;
};

TEST(LinearActivation, HasTheBitsOfTwoOps) {
  for (const DType dtype : {DType::Float, DType::BFloat16}) {
    for (const Activation kind :
         {Activation::kGeluTanh, Activation::kGeluErf, Activation::kSquaredRelu}) {
      for (const bool with_bias : {true, false}) {
        Layer one(dtype), two(dtype);
        const Tensor y_one = one.forward(kind, true, with_bias, {});
        const Tensor y_two = two.forward(kind, false, with_bias, {});
        EXPECT_TRUE(bit_equal(y_one, y_two));
        run_backward(y_one, one.dy);
        run_backward(y_two, two.dy);
        EXPECT_TRUE(bit_equal(one.x.grad(), two.x.grad()));
        EXPECT_TRUE(bit_equal(one.weight.grad(), two.weight.grad()));
        if (with_bias) EXPECT_TRUE(bit_equal(one.bias.grad(), two.bias.grad()));
      }
    }
  }
}

// Its output can be made again from the map's, and its weights' gradients can wait.
TEST(LinearActivation, IsRebuiltAndPostponed) {
  Layer plain(DType::Float), again(DType::Float);
  run_backward(plain.forward(Activation::kGeluTanh, true, true, {}), plain.dy);
  tensor::RebuildActivations policy({"Activation"});
  WeightGradQueue queue;
  queue.set_postpone(true);
  const Scope scope{.queue = &queue, .unit = 1, .saves = &policy};
  const Tensor y = again.forward(Activation::kGeluTanh, true, true, scope);
  const Saved reader = scope.save(y, "Reader");
  EXPECT_EQ(policy.num_waiting(), 1U);
  EXPECT_TRUE(bit_equal(reader.get(), y));
  run_backward(y, again.dy);
  EXPECT_EQ(queue.pending_of(1), 1U);
  queue.drain({.unit = 1, .micro_batch = 0});
  EXPECT_TRUE(bit_equal(again.x.grad(), plain.x.grad()));
  EXPECT_TRUE(bit_equal(again.weight.grad(), plain.weight.grad()));
  EXPECT_TRUE(bit_equal(again.bias.grad(), plain.bias.grad()));
}

}  // namespace
}  // namespace pentatron::ops
