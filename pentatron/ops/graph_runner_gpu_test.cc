// SPDX-License-Identifier: Apache-2.0
// Backward of graphs of a GPU on the calling thread: the library engine's bits, backward inside
// backward, and both inside a recorded step.
#include "pentatron/ops/graph_runner.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "pentatron/ops/activation.h"
#include "pentatron/ops/norm.h"
#include "pentatron/ops/scope.h"
#include "pentatron/ops/test_recompute.h"
#include "pentatron/tensor/device_queue.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/tensor/offload_activations.h"
#include "pentatron/tensor/rebuild_activations.h"

namespace pentatron::ops {
namespace {

namespace autograd = torch::autograd;
using namespace testing;  // NOLINT: test vocabulary

const Device kGpu("cuda:0");

class GraphRunnerOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    PENTATRON_NEEDS_GPUS(1);
    tensor::use_device(kGpu);
  }
};

struct Stack {
  TestWeight scale{normal({512}, 1).to(DType::BFloat16).to(kGpu), DType::Float};
  TestWeight up{normal({1024, 512}, 2, DType::Double, 0.1).to(DType::BFloat16).to(kGpu),
                DType::Float};
  TestWeight down{normal({512, 1024}, 3, DType::Double, 0.1).to(DType::BFloat16).to(kGpu),
                  DType::Float};
  Tensor x = leaf(normal({2048, 512}, 4).to(DType::BFloat16).to(kGpu));
  Tensor dy = normal({2048, 512}, 5).to(DType::BFloat16).to(kGpu);

  Tensor forward(const Scope& scope = {}) {
    const Tensor h = rms_norm(x, scale, 1e-5, DType::Float, scope);
    return linear(gelu_tanh(linear(h, up, nullptr, scope), scope), down, nullptr, scope).add(x);
  }
  std::vector<Tensor> gradients() const { return {x.grad(), scale.grad(), up.grad(), down.grad()}; }
};

void expect_equal(const Stack& a, const Stack& b) {
  for (std::size_t i = 0; i < a.gradients().size(); ++i) {
    EXPECT_TRUE(bit_equal(a.gradients()[i], b.gradients()[i])) << i;
  }
}

TEST_F(GraphRunnerOnGpu, GivesTheEnginesBits) {
  Stack ours, theirs;
  run_backward(ours.forward(), ours.dy);
  const Tensor y = theirs.forward();
  autograd::Engine::get_default_engine().execute({autograd::impl::gradient_edge(y)}, {theirs.dy},
                                                 false, false, true);
  expect_equal(ours, theirs);
}

TEST_F(GraphRunnerOnGpu, RunsInsideItself) { testing::expect_nested_backward(kGpu); }

TEST_F(GraphRunnerOnGpu, RunsInsideItselfInARecordedStep) {
  const auto [dx, dw] = testing::nested_gradients(kGpu, 0);
  TestWeight weight(normal({4, 4}, 2, DType::Double, 0.5).to(kGpu));
  const Tensor x = normal({6, 4}, 1).to(kGpu), dy = normal({6, 4}, 3).to(kGpu);
  const Tensor kept_dx = tensor::zeros({6, 4}, DType::Double, kGpu);
  testing::AgainBackward::Body body = [&](const Tensor& in) {
    return linear(in.tanh(), weight, nullptr, {}).add(in);
  };
  for (int level = 0; level < 3; ++level) {
    body = [inner = body](const Tensor& in) {
      return testing::AgainBackward::run(testing::AgainBackward::run(in, inner).mul(0.7), inner);
    };
  }
  const auto step = [&] {
    weight.new_step();
    const Tensor input = x.detach().requires_grad_(true);
    run_backward(body(input), dy);
    kept_dx.copy_(input.grad());
  };
  tensor::StepGraph graph(kGpu);
  graph.warm_up(step);
  graph.capture(step);
  kept_dx.zero_();
  weight.grad().zero_();
  graph.replay();
  EXPECT_TRUE(bit_equal(kept_dx, dx));
  EXPECT_TRUE(bit_equal(weight.grad(), dw));
}

TEST_F(GraphRunnerOnGpu, RebuiltAndOffloadedActivationsGiveTheSameBits) {
  Stack kept, rebuilt, offloaded;
  run_backward(kept.forward(), kept.dy);
  tensor::RebuildActivations rebuild({"RmsNorm", "Activation"});
  run_backward(rebuilt.forward({.saves = &rebuild}), rebuilt.dy);
  EXPECT_EQ(rebuild.num_rebuilt(), 2);
  expect_equal(rebuilt, kept);
  tensor::OffloadActivations offload(kGpu, 1 << 20);
  const std::int64_t before = tensor::device_memory(kGpu).allocated;
  {
    offload.begin_unit(0, 0);
    const Tensor y = offloaded.forward({.saves = &offload});
    offload.begin_unit(1, 0);
    offload.end_units();
    tensor::synchronize(kGpu);
    // Norm input and output, both of gelu: the first is the caller's, the others went to the host.
    EXPECT_EQ(offload.host_bytes(), 2048 * (512 + 512 + 1024 + 1024) * 2);
    EXPECT_LT(tensor::device_memory(kGpu).allocated - before, 2048 * 1024 * 2);
    offload.fetch_ahead(0, 0);
    run_backward(y, offloaded.dy);
  }
  expect_equal(offloaded, kept);
  EXPECT_EQ(offload.host_bytes(), 0);
}

}  // namespace
}  // namespace pentatron::ops
