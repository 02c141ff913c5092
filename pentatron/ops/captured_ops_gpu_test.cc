// SPDX-License-Identifier: Apache-2.0
// No op reads a GPU's tensor on the host: forward, backward and update of a small model, recorded
// once and replayed, give what eager steps give.
#include "pentatron/ops/activation.h"
#include "pentatron/ops/adamw.h"
#include "pentatron/ops/attention.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/cross_entropy.h"
#include "pentatron/ops/embedding.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/norm.h"
#include "pentatron/ops/rotary.h"
#include "pentatron/ops/test_fp8.h"
#include "pentatron/tensor/device_queue.h"
#include "pentatron/tensor/gpu_test_support.h"

namespace pentatron::ops {
namespace {

using testing::normal;
using testing::TestWeight;

const Device kGpu("cuda:0");
constexpr std::int64_t kTokens = 48, kHidden = 64, kVocab = 50, kManyTokens = 5000;

std::vector<std::int64_t> values(std::int64_t count, std::int64_t modulus) {
  std::vector<std::int64_t> made;
  for (std::int64_t t = 0; t < count; ++t) made.push_back(t * 7 % modulus);
  return made;
}
Tensor ids(std::int64_t count, std::int64_t modulus) {
  return tensor::from_vector(values(count, modulus)).to(kGpu);
}

// Weights, batch and state live as long as the recorded step.
class SmallModel final {
 public:
  SmallModel() {
    for (const Shape& shape : {Shape{kVocab, kHidden},
                               {kHidden},
                               {128, kHidden},
                               {kHidden},
                               {128, kHidden},
                               {128},
                               {kHidden},
                               {kHidden},
                               {kVocab, kHidden}}) {
      const Tensor value = normal(shape, 10 + weights_.size(), DType::Double, 0.3);
      weights_.emplace_back(value.to(DType::BFloat16).to(kGpu), DType::Float);
    }
    master_ = normal({kVocab * kHidden}, 1, DType::Float).to(kGpu);
    exp_avg_ = tensor::zeros({kVocab * kHidden}, DType::Float, kGpu);
    exp_avg_sq_ = tensor::zeros({kVocab * kHidden}, DType::Float, kGpu);
  }

  void step() {
    for (TestWeight& weight : weights_) weight.new_step();
    const Tensor x = embedding(tokens_, weights_[0], 0, kVocab);
    const Tensor h = rms_norm(x, weights_[1], 1e-5, DType::Float);
    const Tensor qkv = linear(h, weights_[2], nullptr, {}).view({kTokens, 8, 16});
    const Tensor q = rotary(qkv.narrow(1, 0, 4), table_, layout_);
    const Tensor k = rotary(qkv.narrow(1, 4, 2), table_, layout_);
    const Tensor mixed = attention(q, k, qkv.narrow(1, 6, 2), layout_, {.scale = 0.25});
    const Tensor kept =
        dropout(mixed.reshape({kTokens, kHidden}), 0.1, {77}, tokens_, positions_, 0);
    const Tensor same = kept.add(as_graph_tensor(weights_[3]));
    const Tensor wide = swiglu(linear(same, weights_[4], &weights_[5], {}));
    const Tensor out = layer_norm(gelu_tanh(wide), weights_[6], weights_[7], 1e-5, DType::Float);
    const Tensor fp8 = linear(out, fp8_weight_, nullptr, {.recipe = {.numbers = Numbers::kFp8}});
    run_backward(fp8, grad_);
    run_backward(embedding(many_tokens_, weights_[8], 0, kVocab), many_grads_);

    Tensor logits = logits_.clone();
    const SoftmaxPieces pieces = softmax_pieces(logits, tokens_, 0, kVocab - 3, DType::Float);
    softmax_gradient_(logits, tokens_, pieces.sum_exp_t.log().add(pieces.max_t), pieces.max_t, 0,
                      kVocab - 3);
    loss_gradient_.copy_(logits);
    squares_.copy_(sum_of_squares(weights_[0].grad()));
    updates_.add_(1.0);
    adamw_step(master_, weights_[0].grad().view({-1}), exp_avg_, exp_avg_sq_,
               {.lr = rate_, .step = updates_}, {});
  }

  std::vector<Tensor> results() const {
    std::vector<Tensor> all{master_, exp_avg_, exp_avg_sq_, loss_gradient_, squares_};
    for (const TestWeight& weight : weights_) all.push_back(weight.grad());
    return all;
  }

 private:
  std::vector<TestWeight> weights_;
  testing::Fp8TestWeight fp8_weight_{
      normal({kHidden, kHidden}, 5, DType::Double, 0.3).to(DType::BFloat16).to(kGpu)};
  Tensor tokens_ = ids(kTokens, kVocab), positions_ = ids(kTokens, 31);
  SequenceLayout layout_ =
      SequenceLayout({.boundaries = {0, 20, kTokens}, .positions = values(kTokens, 31)}).to(kGpu);
  Tensor many_tokens_ = ids(kManyTokens, kVocab + 9);
  Tensor many_grads_ = normal({kManyTokens, kHidden}, 2).to(DType::BFloat16).to(kGpu);
  Tensor grad_ = normal({kTokens, kHidden}, 3).to(DType::BFloat16).to(kGpu);
  Tensor logits_ = normal({kTokens, kVocab}, 4, DType::Float).to(kGpu);
  Tensor loss_gradient_ = tensor::zeros({kTokens, kVocab}, DType::Float, kGpu);
  RotaryTable table_ = make_rotary_table(31, 16, 100.0, DType::Float, kGpu);
  Tensor rate_ = tensor::scalar(0.01, DType::Double, kGpu);
  Tensor updates_ = tensor::scalar(0, DType::Double, kGpu);
  Tensor squares_ = tensor::scalar(0, DType::Double, kGpu);
  Tensor master_, exp_avg_, exp_avg_sq_;
};

TEST(CapturedOps, ReplayEqualsEagerSteps) {
  PENTATRON_NEEDS_GPUS(1);
  tensor::use_device(kGpu);
  SmallModel eager, recorded;
  for (int step = 0; step < 3; ++step) eager.step();
  tensor::StepGraph graph(kGpu);
  graph.warm_up([&] { recorded.step(); });
  graph.capture([&] { recorded.step(); });
  for (int step = 1; step < 3; ++step) graph.replay();
  tensor::synchronize(kGpu);
  const std::vector<Tensor> a = eager.results(), b = recorded.results();
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_GT(a[i].abs().max().item<double>(), 0.0) << "result " << i;
    testing::expect_close(b[i], a[i], 1e-5, "result " + std::to_string(i));
  }
}

}  // namespace
}  // namespace pentatron::ops
