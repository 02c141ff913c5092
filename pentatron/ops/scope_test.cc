// SPDX-License-Identifier: Apache-2.0
// What ops save under each policy: gradients are bit-equal, memory is not.
#include "pentatron/ops/scope.h"

#include "pentatron/ops/activation.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/norm.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/offload_activations.h"
#include "pentatron/tensor/rebuild_activations.h"

namespace pentatron::ops {
namespace {

using namespace testing;  // NOLINT: test vocabulary

constexpr std::int64_t kRows = 64, kWidth = 128;
constexpr std::int64_t kBytes = kRows * kWidth * 8;  // of one activation of the stack's width

struct Stack {
  TestWeight scale{normal({kWidth}, 1)}, shift{normal({kWidth}, 2)};
  TestWeight up{normal({4 * kWidth, kWidth}, 3, DType::Double, 0.1)};
  TestWeight gate{normal({2 * kWidth, 2 * kWidth}, 4, DType::Double, 0.1)};
  TestWeight down{normal({kWidth, kWidth}, 5, DType::Double, 0.1)};
  Tensor x = leaf(normal({kRows, kWidth}, 6));

  // Norm -> linear -> swiglu -> linear -> gelu ... each activation used by the next op alone.
  Tensor forward(const Scope& scope) {
    Tensor h = layer_norm(x, scale, shift, 1e-5, DType::Double, scope);
    h = swiglu(linear(h, up, nullptr, scope), scope);
    h = swiglu(gelu_tanh(linear(h, gate, nullptr, scope), scope), scope);
    return linear(rms_norm(h, scale, 1e-5, DType::Double, scope), down, nullptr, scope);
  }
  std::vector<Tensor> gradients(const Scope& scope, std::int64_t* held = nullptr) {
    const tensor::MemoryMeter meter;
    Tensor y = forward(scope);
    GradientEdge edge(y);
    y = Tensor();
    if (held != nullptr) *held = meter.current_bytes();
    run_backward({&edge}, {normal({kRows, kWidth}, 7)});
    return {x.grad(), scale.grad(), shift.grad(), up.grad(), gate.grad(), down.grad()};
  }
};

void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(bit_equal(a[i], b[i])) << i;
}

TEST(Scope, RebuildingChangesNoBitAndHoldsLess) {
  std::int64_t kept = 0, rebuilt = 0;
  const std::vector<Tensor> expected = Stack().gradients({}, &kept);
  tensor::RebuildActivations policy({"LayerNorm", "RmsNorm", "Activation", "Gated"});
  expect_equal(Stack().gradients({.saves = &policy}, &rebuilt), expected);
  // Norm outputs (1 + 1), swiglu outputs (2 + 1), gelu's (2) go; linear outputs stay.
  EXPECT_EQ(policy.num_rebuilt(), 5);
  EXPECT_EQ(policy.num_waiting(), 0u);
  EXPECT_GE(kept - rebuilt, 7 * kBytes);
  tensor::RebuildActivations norms({"LayerNorm"});
  expect_equal(Stack().gradients({.saves = &norms}), expected);
  EXPECT_EQ(norms.num_rebuilt(), 1);
}

TEST(Scope, OffloadingChangesNoBit) {
  const std::vector<Tensor> expected = Stack().gradients({});
  tensor::OffloadActivations policy(kCpu, 1024);
  Stack stack;
  {
    const Tensor y = stack.forward({.saves = &policy});
    // norm in 1, out 1; linear out 4; swiglu out 2; linear out 2; gelu out 2; swiglu out 1; norm
    // out 1. Each once, though most are saved by one op as its output and by the next as its input.
    EXPECT_EQ(policy.host_bytes(), 14 * kBytes);
  }
  EXPECT_EQ(policy.host_bytes(), 0);
  expect_equal(Stack().gradients({.saves = &policy}), expected);
}

TEST(Scope, PostponedWorkSharesTheSlot) {
  const std::vector<Tensor> expected = Stack().gradients({});
  tensor::RebuildActivations policy({"LayerNorm", "RmsNorm", "Activation", "Gated"});
  WeightGradQueue queue;
  queue.set_postpone(true);
  Stack stack;
  run_backward(stack.forward({.queue = &queue, .unit = 2, .saves = &policy, .micro_batch = 1}),
               normal({kRows, kWidth}, 7));
  EXPECT_EQ(queue.pending_of(2), 3u);
  queue.drain({.unit = 2, .micro_batch = 0});
  EXPECT_EQ(queue.pending(), 3u);
  queue.drain({.unit = 2, .micro_batch = 1});
  EXPECT_EQ(queue.pending(), 0u);
  expect_equal({stack.x.grad(), stack.scale.grad(), stack.shift.grad(), stack.up.grad(),
                stack.gate.grad(), stack.down.grad()},
               expected);
  EXPECT_EQ(policy.num_waiting(), 0u);
}

}  // namespace
}  // namespace pentatron::ops
