// SPDX-License-Identifier: Apache-2.0
// The op seam: nodes, edges, postponed weight gradients.
#include "pentatron/ops/backward.h"

#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/ops/activation.h"
#include "pentatron/ops/embedding.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/norm.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::ops {
namespace {

using namespace testing;  // NOLINT: test vocabulary

// y = 3 x, and what happened to its backward.
struct Trace {
  int applied = 0;
  int released = 0;
  int destroyed = 0;
};
class TripleBackward final : public Backward {
 public:
  TripleBackward(const Tensor& x, Trace& trace) : x_(x), trace_(&trace) {}
  ~TripleBackward() override { ++trace_->destroyed; }
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    ++trace_->applied;
    return {output_grads[0].mul(3.0)};
  }
  void release() override {
    ++trace_->released;
    x_.release();
  }
  std::string_view name() const override { return "Triple"; }

 private:
  Saved x_;
  Trace* trace_;
};
Tensor triple(const Tensor& x, Trace& trace) {
  Tensor y;
  {
    const tensor::NoGrad no_grad;
    y = x.mul(3.0);
  }
  if (!needs_backward({x})) return y;
  return attach(y, {x}, std::make_unique<TripleBackward>(x, trace));
}

TEST(Backward, RunsOnceAndReleases) {
  Trace trace;
  const Tensor x = leaf(normal({3, 4}, 1));
  const Tensor y = triple(x, trace);
  const Tensor g = normal({3, 4}, 2);
  run_backward(y, g);
  EXPECT_TRUE(bit_equal(x.grad(), g.mul(3.0)));
  EXPECT_EQ(trace.applied, 1);
  EXPECT_EQ(trace.released, 1);
  EXPECT_EQ(trace.destroyed, 1);
}

TEST(Backward, SecondBackwardThrows) {
  Trace trace;
  const Tensor x = leaf(normal({2}, 1));
  const Tensor y = triple(x, trace);
  run_backward(y, normal({2}, 2));
  try {
    run_backward(y, normal({2}, 2));
    FAIL() << "a second backward went through";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    EXPECT_NE(std::string(error.what()).find("second backward"), std::string::npos);
  }
  EXPECT_EQ(trace.applied, 1);
}

TEST(Backward, SecondDerivativeThrows) {
  Trace trace;
  const Tensor x = leaf(normal({2}, 1));
  const Tensor y = triple(x, trace);
  try {
    y.sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    FAIL() << "create_graph went through";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
  }
}

TEST(Backward, DroppedGraphFreesItsNode) {
  Trace trace;
  {
    const Tensor x = leaf(normal({2}, 1));
    const Tensor y = triple(x, trace);
    EXPECT_EQ(trace.destroyed, 0);
  }
  EXPECT_EQ(trace.applied, 0);
  EXPECT_EQ(trace.destroyed, 1);
}

TEST(Backward, NoNodeWithoutNeed) {
  Trace trace;
  EXPECT_FALSE(triple(normal({2}, 1), trace).requires_grad());
  const Tensor x = leaf(normal({2}, 1));
  const tensor::NoGrad no_grad;
  EXPECT_FALSE(triple(x, trace).requires_grad());
  EXPECT_FALSE(needs_backward({x}, /*force=*/true));
}

TEST(Backward, WrongGradientShapeIsRefused) {
  class Wrong final : public Backward {
   public:
    std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
      return {output_grads[0].sum(IntList{0}, true)};
    }
    void release() override {}
    std::string_view name() const override { return "Wrong"; }
  };
  const Tensor x = leaf(normal({3, 4}, 1));
  const Tensor y = attach(normal({3, 4}, 2), {x}, std::make_unique<Wrong>());
  EXPECT_THROW(run_backward(y, normal({3, 4}, 3)), Error);
}

TEST(Backward, SeveralOutputsAndUndefinedInputs) {
  class Split final : public Backward {
   public:
    std::vector<Tensor> apply(std::vector<Tensor> grads) override {
      // The second output was not used.
      EXPECT_TRUE(grads[0].defined());
      EXPECT_FALSE(grads[1].defined());
      return {grads[0].mul(2.0), Tensor()};
    }
    void release() override {}
    std::string_view name() const override { return "Split"; }
  };
  const Tensor x = leaf(normal({3}, 1));
  std::vector<Tensor> outputs{normal({3}, 2), normal({4}, 3)};
  attach(outputs, {x, Tensor()}, std::make_unique<Split>());
  run_backward(outputs[0], normal({3}, 4));
  EXPECT_TRUE(bit_equal(x.grad(), normal({3}, 4).mul(2.0)));
}

TEST(Backward, OutputWithGraphIsRefused) {
  Trace trace;
  const Tensor x = leaf(normal({2}, 1));
  EXPECT_THROW((void)attach(x, {x}, std::make_unique<TripleBackward>(x, trace)), Error);
  EXPECT_THROW((void)attach(tensor::zeros({2}, DType::Long), {x},
                            std::make_unique<TripleBackward>(x, trace)),
               Error);
}

TEST(Backward, Fp8OutputHasABf16Edge) {
  Trace trace;
  const Tensor x = leaf(normal({4}, 1, DType::BFloat16));
  const Tensor payload = normal({4}, 2).to(DType::Float8_e4m3fn);
  const Tensor y = attach(payload, {x}, std::make_unique<TripleBackward>(x, trace));
  run_backward(y, normal({4}, 3, DType::BFloat16));
  EXPECT_TRUE(bit_equal(x.grad(), normal({4}, 3, DType::BFloat16).mul(3.0)));
}

TEST(Backward, PlainOpsBetweenNodes) {
  Trace trace;
  const Tensor x = leaf(normal({3, 4}, 1));
  const Tensor y = triple(triple(x, trace).mul(0.5).relu().add(x), trace);
  const Tensor g = normal({3, 4}, 2);
  run_backward(y, g);
  const Tensor z = leaf(x.detach());
  z.mul(3.0).mul(0.5).relu().add(z).mul(3.0).backward(g);
  testing::expect_close(x.grad(), z.grad(), 1e-15, "gradient through plain ops");
}

TEST(Backward, EdgeOutlivesTheTensor) {
  const Tensor x = leaf(normal({64, 64}, 1));
  TestWeight weight(normal({64, 64}, 2));
  GradientEdge edge;
  EXPECT_FALSE(edge.defined());
  {
    const Tensor y = linear(x, weight, nullptr, {});
    edge = GradientEdge(y);
  }
  ASSERT_TRUE(edge.defined());
  const Tensor g = normal({64, 64}, 3);
  run_backward({&edge}, {g});
  testing::expect_close(x.grad(), g.matmul(weight.value()), 1e-13, "input gradient");
  GradientEdge none(normal({2}, 1));
  EXPECT_FALSE(none.defined());
  EXPECT_THROW(run_backward({&none}, {normal({2}, 1)}), Error);
}

TEST(Backward, ForcedNodeRunsWithoutDifferentiableInputs) {
  TestWeight table(normal({7, 3}, 1));
  const Tensor ids = tensor::from_vector(std::vector<std::int64_t>{2, 0, 2});
  const Tensor y = embedding(ids, table, 0, 7);
  ASSERT_TRUE(y.requires_grad());
  run_backward(y, tensor::ones({3, 3}, DType::Double));
  EXPECT_EQ(table.grad()[2][0].item<double>(), 2.0);
  EXPECT_EQ(table.grad()[0][1].item<double>(), 1.0);
  EXPECT_EQ(table.grad()[6][2].item<double>(), 0.0);
}

TEST(Backward, GraphTensorAddsIntoTheSlot) {
  TestWeight weight(normal({4, 3}, 1));
  const Tensor x = leaf(normal({5, 3}, 2));
  const Tensor g = normal({5, 4}, 3);
  for (int use = 0; use < 2; ++use) {
    run_backward(x.matmul(as_graph_tensor(weight).t()), g);
  }
  EXPECT_EQ(weight.writes(), 2);
  testing::expect_close(weight.grad(), g.t().matmul(x.detach()).mul(2.0), 1e-14, "slot");
  weight.set_trainable(false);
  EXPECT_FALSE(as_graph_tensor(weight).requires_grad());
}

TEST(Backward, SlotOverwritesFirstThenAccumulates) {
  TestWeight weight(normal({4, 3}, 1));
  const Tensor x = normal({5, 3}, 2), g = normal({5, 4}, 3);
  const Tensor expected = g.t().matmul(x);
  run_backward(linear(x, weight, nullptr, {}), g);  // over NaN
  testing::expect_close(weight.grad(), expected, 1e-14, "first write");
  run_backward(linear(x, weight, nullptr, {}), g);
  testing::expect_close(weight.grad(), expected.mul(2.0), 1e-14, "second write");
  weight.new_step();
  run_backward(linear(x, weight, nullptr, {}), g);
  testing::expect_close(weight.grad(), expected, 1e-14, "new step");
}

TEST(Backward, SlotOfAWrongShapeIsRefused) {
  TestWeight weight(normal({4, 3}, 1));
  weight.set_grad(tensor::zeros({3, 4}, DType::Double));
  const Tensor y = linear(normal({5, 3}, 2), weight, nullptr, {});
  EXPECT_THROW(run_backward(y, normal({5, 4}, 3)), Error);
  EXPECT_THROW(write_grad(weight, normal({4, 3}, 1)), Error);
}

TEST(Backward, NoRowsWriteZerosFirst) {
  TestWeight weight(normal({4, 3}, 1)), bias(normal({4}, 2)), scale(normal({3}, 3));
  TestWeight shift(normal({3}, 4)), table(normal({5, 3}, 5));
  const Tensor ids = tensor::zeros({0}, DType::Long);
  Tensor h = embedding(ids, table, 0, 5);
  h = layer_norm(h, scale, shift, 1e-5, DType::Float);
  h = linear(h, weight, &bias, {});
  run_backward(h, tensor::zeros({0, 4}, DType::Double));
  for (const TestWeight* w : {&weight, &bias, &scale, &shift, &table}) {
    EXPECT_EQ(w->writes(), 1);
    EXPECT_TRUE(w->grad().eq(0.0).all().item<bool>());
  }
}

TEST(Backward, FrozenWeightsGetNothing) {
  TestWeight weight(normal({4, 3}, 1)), bias(normal({4}, 2));
  weight.set_trainable(false);
  bias.set_trainable(false);
  EXPECT_FALSE(linear(normal({5, 3}, 3), weight, &bias, {}).requires_grad());
  const Tensor x = leaf(normal({5, 3}, 3));
  const Tensor g = normal({5, 4}, 4);
  run_backward(linear(x, weight, &bias, {}), g);
  EXPECT_EQ(weight.writes() + bias.writes(), 0);
  testing::expect_close(x.grad(), g.matmul(weight.value()), 1e-14, "input gradient");
}

TEST(Backward, PostponedWeightGradientsEqualImmediateOnes) {
  const Tensor x = normal({9, 5}, 1), g = normal({9, 5}, 2);
  std::vector<Tensor> grads[2];
  std::vector<int> done;
  for (const bool postpone : {false, true}) {
    std::vector<TestWeight> weights;
    for (int i = 0; i < 4; ++i) weights.emplace_back(normal({5, 5}, 10 + i, DType::Double, 0.3));
    TestWeight bias(normal({5}, 20));
    WeightGradQueue queue;
    queue.set_postpone(postpone);
    const auto listening = queue.on_unit_done([&](int layer) { done.push_back(layer); });
    Tensor h = leaf(x);
    for (int i = 0; i < 4; ++i) {
      h = linear(h, weights[i], i == 0 ? &bias : nullptr,
                 {.queue = &queue, .unit = i / 2, .micro_batch = i % 2});
    }
    run_backward(h, g);
    EXPECT_EQ(queue.pending(), postpone ? 4u : 0u);
    EXPECT_EQ(queue.pending_of(1), postpone ? 2u : 0u);
    if (postpone) {
      EXPECT_EQ(weights[0].writes(), 0);
      queue.drain({.unit = 1, .micro_batch = 1});
      EXPECT_EQ(queue.pending(), 3u);
      EXPECT_EQ(weights[3].writes(), 1);
      EXPECT_TRUE(done.empty());
    }
    queue.drain();
    for (const TestWeight& w : weights) grads[postpone].push_back(w.grad());
    grads[postpone].push_back(bias.grad());
  }
  EXPECT_EQ(done, (std::vector<int>{1, 0}));
  for (std::size_t i = 0; i < grads[0].size(); ++i)
    EXPECT_TRUE(bit_equal(grads[0][i], grads[1][i]));
}

// A small stack, forward and backward; returns the input gradient.
Tensor run_stack(std::vector<TestWeight>& weights, TestWeight& scale, const Tensor& x) {
  Tensor input = leaf(x), h = input;
  for (TestWeight& weight : weights)
    h = gelu_tanh(linear(rms_norm(h, scale, 1e-5, DType::Float), weight, nullptr, {}));
  run_backward(h, tensor::ones(h.sizes(), h.scalar_type()));
  return input.grad();
}

TEST(Backward, FourThreadsEachRunTheirGraph) {
  const Tensor x = normal({16, 24}, 1);
  std::vector<Tensor> input_grads(5), weight_grads(5);
  const auto work = [&](int rank) {
    tensor::set_up_rank_thread(1);
    std::vector<TestWeight> weights;
    for (int i = 0; i < 6; ++i) weights.emplace_back(normal({24, 24}, 50 + i, DType::Double, 0.2));
    TestWeight scale(normal({24}, 60));
    for (int step = 0; step < 20; ++step) {
      for (TestWeight& w : weights) w.new_step();
      scale.new_step();
      input_grads[rank] = run_stack(weights, scale, x);
    }
    weight_grads[rank] = weights[0].grad();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) threads.emplace_back(work, rank);
  for (std::thread& thread : threads) thread.join();
  std::thread(work, 4).join();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(bit_equal(input_grads[rank], input_grads[4]));
    EXPECT_TRUE(bit_equal(weight_grads[rank], weight_grads[4]));
  }
}

TEST(Backward, NothingLeaksOverFiftySteps) {
  std::vector<TestWeight> weights;
  for (int i = 0; i < 3; ++i) weights.emplace_back(normal({32, 32}, i, DType::Float, 0.2));
  TestWeight scale(normal({32}, 9, DType::Float));
  const Tensor x = normal({64, 32}, 10, DType::Float);
  (void)run_stack(weights, scale, x);
  const tensor::MemoryMeter meter;
  for (int step = 0; step < 50; ++step) (void)run_stack(weights, scale, x);
  EXPECT_GT(meter.peak_bytes(), 64 * 32 * 4);
  EXPECT_EQ(meter.current_bytes(), 0);
}

TEST(Backward, ActivationsAreFreedAsBackwardGoes) {
  TestWeight weight(normal({256, 256}, 1, DType::Float, 0.05));
  Tensor x = leaf(normal({256, 256}, 2, DType::Float));
  const tensor::MemoryMeter meter;
  Tensor h = x;
  for (int i = 0; i < 8; ++i) h = gelu_tanh(linear(h, weight, nullptr, {}));
  GradientEdge edge(h);
  h = Tensor();
  const std::int64_t held = meter.current_bytes();
  EXPECT_GT(held, 14 * 256 * 256 * 4);
  run_backward({&edge}, {tensor::ones({256, 256}, DType::Float)});
  // The edge's nodes are alive, but empty: only the input's gradient is left.
  EXPECT_LT(meter.current_bytes(), 2 * 256 * 256 * 4);
}

}  // namespace
}  // namespace pentatron::ops
