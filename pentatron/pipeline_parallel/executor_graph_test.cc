// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "pentatron/base/error.h"
#include "pentatron/comm/backend.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/linear.h"
#include "pentatron/pipeline_parallel/executor.h"
#include "pentatron/tensor/ops.h"

// Stages that form a diamond: 0 to 1 and 2, both to 3. Shapes: t tokens, h hidden.
namespace pentatron::pipeline_parallel {
namespace {

constexpr std::int64_t kHidden = 4;

Tensor weight_values(int stage) {
  return tensor::arange(kHidden * kHidden, DType::Double)
      .mul(0.9)
      .add(stage)
      .sin()
      .view({kHidden, kHidden});
}

Tensor embed(const Tensor& tokens_t) {
  return tokens_t.to(DType::Double)
      .add(1)
      .unsqueeze(1)
      .mul(0.3)
      .add(tensor::arange(kHidden, DType::Double))
      .sin();
}

Tensor loss_of(const Tensor& left_th, const Tensor& right_th, const Tensor& bottom_th) {
  return left_th.mul(3.0).sub(right_th.square()).add(bottom_th).square().sum();
}

class DiamondStage final : public nn::Stage {
 public:
  explicit DiamondStage(int place) : place_(place) {
    nn::ShardPart part;
    part.name = "stages." + std::to_string(place);
    part.logical_shape = {kHidden, kHidden};
    part.box = {{0, 0}, {kHidden, kHidden}};
    part.local_rows = kHidden;
    auto parameter = std::make_unique<nn::Parameter>(
        "weight", nn::ShardSpec{{part}, {kHidden, kHidden}}, precision_policy("fp64"));
    parameter->data().copy_(weight_values(place));
    parameter->bind_grad(tensor::zeros({kHidden, kHidden}, DType::Double));
    weight_ = &add_parameter(std::move(parameter));
  }

  nn::Bundle forward(const nn::Bundle& input, nn::StepContext& context) override {
    const auto apply = [&](const Tensor& x_th) {
      return ops::linear(x_th.tanh(), *weight_, nullptr, context.scope);
    };
    if (place_ == 0) {
      const Tensor x_th = apply(embed(context.batch.tokens));
      return {{"hidden", x_th, true}, {"extra", x_th.mul(2.0), true}};
    }
    if (place_ == 1) return {{"left", apply(input.at(0).tensor), true}};
    if (place_ == 2) {
      return {{"right", apply(input.at(0).tensor.add(input.at(1).tensor)), true},
              {"bottom", input.at(1).tensor, true}};
    }
    return {{"loss", loss_of(apply(input.at(0).tensor), input.at(1).tensor, input.at(2).tensor)}};
  }

  nn::BundleSpec input_spec(const BatchMeta& batch) const override {
    static const std::vector<std::vector<std::string>> names = {
        {}, {"hidden"}, {"hidden", "extra"}, {"left", "right", "bottom"}};
    return specs(names[static_cast<std::size_t>(place_)], batch);
  }
  nn::BundleSpec output_spec(const BatchMeta& batch) const override {
    static const std::vector<std::vector<std::string>> names = {
        {"hidden", "extra"}, {"left"}, {"right", "bottom"}, {}};
    return specs(names[static_cast<std::size_t>(place_)], batch);
  }
  std::vector<nn::Unit> units() override { return {{"stage", {weight_}}}; }
  Tensor logits(const nn::Bundle&, nn::StepContext&) override { return Tensor(); }
  Tensor& grad() { return weight_->main_grad(); }

 private:
  static nn::BundleSpec specs(const std::vector<std::string>& names, const BatchMeta& batch) {
    nn::BundleSpec all;
    for (const std::string& name : names) {
      all.push_back({name, {batch.num_tokens, kHidden}, DType::Double, true});
    }
    return all;
  }

  int place_;
  nn::Parameter* weight_;
};

// "hidden" goes over both edges of stage 0, "extra" over one: gradients of the first are summed.
StageEdges edges_of(int place) {
  if (place == 0) return {{}, {{1, {"hidden"}}, {2, {}}}};
  if (place == 1) return {{{0, {}}}, {{3, {}}}};
  if (place == 2) return {{{0, {}}}, {{3, {}}}};
  return {{{1, {"left"}}, {2, {"right", "bottom"}}}, {}};
}

ActionList actions_of(int place, int num_micro_batches) {
  using K = ActionKind;
  const int num_previous = place == 0 ? 0 : place == 3 ? 2 : 1;
  const int num_next = place == 3 ? 0 : place == 0 ? 2 : 1;
  ActionList list;
  const auto put = [&](K kind, int micro_batch, int num_edges) {
    // The last edge first: the order of the bundle is the spec's, not the arrival's.
    for (int edge = num_edges - 1; edge >= 0; --edge) list.push_back({kind, micro_batch, 0, edge});
  };
  for (int i = 0; i < num_micro_batches; ++i) {
    put(K::kRecvForward, i, num_previous);
    list.push_back({K::kForward, i});
    put(K::kSendForward, i, num_next);
  }
  for (int i = 0; i < num_micro_batches; ++i) {
    put(K::kRecvBackward, i, num_next);
    list.push_back({K::kBackward, i});
    put(K::kSendBackward, i, num_previous);
  }
  return list;
}

std::vector<BatchMeta> make_batches(int count) {
  std::vector<BatchMeta> batches(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    batches[i].num_tokens = 3 + static_cast<std::int64_t>(i);
    batches[i].tokens = tensor::arange(batches[i].num_tokens, DType::Long).mul(i + 1);
  }
  return batches;
}

TEST(Executor, RunsADagOfStages) {
  const auto batches = make_batches(3);
  // The same in one process with the library's own derivatives.
  std::vector<Tensor> weights;
  for (int place = 0; place < 4; ++place) {
    weights.push_back(weight_values(place).requires_grad_(true));
  }
  double expected_loss = 0;
  for (const BatchMeta& batch : batches) {
    const auto apply = [&](int place, const Tensor& x_th) {
      return x_th.tanh().matmul(weights[static_cast<std::size_t>(place)].t());
    };
    const Tensor x_th = apply(0, embed(batch.tokens));
    const Tensor extra_th = x_th.mul(2.0);
    const Tensor loss = loss_of(apply(3, apply(1, x_th)), apply(2, x_th.add(extra_th)), extra_th);
    expected_loss += loss.item<double>();
    ops::run_backward(loss, tensor::scalar(0.5, DType::Double));
  }
  std::mutex mutex;
  comm::run_threads(
      {.world_size = 4, .timeout = std::chrono::milliseconds(20'000)}, [&](comm::Backend& backend) {
        const auto group = backend.make_group({0, 1, 2, 3}, "pp");
        const int place = group->rank();
        DiamondStage stage(place);
        const StepLosses losses = run_schedule(
            actions_of(place, 3), stage, *group, batches, tensor::scalar(0.5, DType::Double),
            {.policy = precision_policy("fp64"), .edges = edges_of(place)});
        const std::lock_guard lock(mutex);
        EXPECT_EQ(losses.loss_sum.defined(), place == 3);
        if (place == 3) {
          EXPECT_NEAR(losses.loss_sum.item<double>(), expected_loss, 1e-12 * expected_loss);
        }
        const Tensor expected = weights[static_cast<std::size_t>(place)].grad();
        const double largest = expected.abs().max().item<double>();
        ASSERT_GT(largest, 0);
        EXPECT_LE(stage.grad().sub(expected).abs().max().item<double>(), 1e-12 * largest) << place;
      });
}

TEST(Executor, RefusesEdgesThatTheStageHasNot) {
  const auto batches = make_batches(1);
  const auto backend = comm::make_single_backend();
  const auto group = backend->make_group({0}, "pp");
  DiamondStage stage(0);
  const Tensor seed = tensor::scalar(1, DType::Double);
  const auto run = [&](const ActionList& list, std::optional<StageEdges> edges) {
    (void)run_schedule(list, stage, *group, batches, seed,
                       {.policy = precision_policy("fp64"), .edges = std::move(edges)});
  };
  using K = ActionKind;
  EXPECT_THROW(run({{K::kRecvForward, 0, 0, 0}}, std::nullopt), Error);  // a chain of one
  EXPECT_THROW(run({{K::kForward, 0, 0, 1}}, edges_of(0)), Error);
  EXPECT_THROW(run({{K::kSendForward, 0, 0, 2}}, edges_of(0)), Error);
  EXPECT_THROW(run({{K::kRecvBackward, 0, 0, -1}}, edges_of(0)), Error);
  EXPECT_THROW(run({}, StageEdges{{{7, {}}}, {}}), Error);  // no such rank
  // A gradient of one edge is missing.
  EXPECT_THROW(run({{K::kForward, 0}, {K::kBackward, 0}}, edges_of(0)), Error);
}

}  // namespace
}  // namespace pentatron::pipeline_parallel
