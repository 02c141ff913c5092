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
#include "pentatron/pipeline_parallel/simulate.h"
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
      const Tensor x_th = apply(embed(context.batch.tokens()));
      return {{"hidden", x_th, true}, {"extra", x_th.mul(2.0), true}};
    }
    if (place_ == 1) return {{"left", apply(input.at(0).tensor), true}};
    if (place_ == 2) {
      return {{"right", apply(input.at(0).tensor.add(input.at(1).tensor)), true},
              {"bottom", input.at(1).tensor, true}};
    }
    return {{"loss", loss_of(apply(input.at(0).tensor), input.at(1).tensor, input.at(2).tensor)}};
  }

  nn::BundleSpec input_spec(const Batch& batch) const override {
    static const std::vector<std::vector<std::string>> kNames = {
        {}, {"hidden"}, {"hidden", "extra"}, {"left", "right", "bottom"}};
    return specs(kNames[static_cast<std::size_t>(place_)], batch);
  }
  nn::BundleSpec output_spec(const Batch& batch) const override {
    static const std::vector<std::vector<std::string>> kNames = {
        {"hidden", "extra"}, {"left"}, {"right", "bottom"}, {}};
    return specs(kNames[static_cast<std::size_t>(place_)], batch);
  }
  std::vector<nn::Unit> units() override { return {{"stage", {weight_}}}; }
  Tensor& grad() { return weight_->main_grad(); }

 private:
  static nn::BundleSpec specs(const std::vector<std::string>& names, const Batch& batch) {
    nn::BundleSpec all;
    for (const std::string& name : names) {
      all.push_back({name, {batch.num_tokens(), kHidden}, DType::Double, true});
    }
    return all;
  }

  int place_;
  nn::Parameter* weight_;
};

// "hidden" goes over both edges of stage 0, "extra" over one: gradients of the first are summed.
StageGraph diamond() {
  return {{{}, {{1, {"hidden"}}, {2}}},
          {{{0, {"hidden"}}}, {{3, {"left"}}}},
          {{{0}}, {{3, {"right", "bottom"}}}},
          {{{1, {"left"}}, {2, {"right", "bottom"}}}, {}}};
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

std::vector<Batch> make_batches(int count) {
  std::vector<Batch> batches(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::int64_t num_tokens = 3 + static_cast<std::int64_t>(i);
    batches[i].sequences.emplace(Batch::kText, SequenceRows{.boundaries = {0, num_tokens}});
    batches[i].fields.emplace("tokens", tensor::arange(num_tokens, DType::Long).mul(i + 1));
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
  for (const Batch& batch : batches) {
    const auto apply = [&](int place, const Tensor& x_th) {
      return x_th.tanh().matmul(weights[static_cast<std::size_t>(place)].t());
    };
    const Tensor x_th = apply(0, embed(batch.tokens()));
    const Tensor extra_th = x_th.mul(2.0);
    const Tensor loss = loss_of(apply(3, apply(1, x_th)), apply(2, x_th.add(extra_th)), extra_th);
    expected_loss += loss.item<double>();
    ops::run_backward(loss, tensor::scalar(0.5, DType::Double));
  }
  std::mutex mutex;
  comm::run_threads(
      {.world_size = 4, .timeout = std::chrono::milliseconds(20'000)}, [&](comm::Backend& backend) {
        const auto activations = backend.make_group({0, 1, 2, 3}, "pp");
        const auto gradients = backend.make_group({0, 1, 2, 3}, "pp#2");
        const int place = activations->rank();
        DiamondStage stage(place);
        const StageSlot slot{.stage = &stage};
        double loss_sum = 0;
        run_schedule(
            actions_of(place, 3), std::span(&slot, 1), {*activations, *gradients}, batches,
            {.policy = precision_policy("fp64"),
             .on_output =
                 [&](int, int, const nn::Bundle& output) {
                   loss_sum += output.at(0).tensor.item<double>();
                 },
             .seed_of = [](const std::string&) { return tensor::scalar(0.5, DType::Double); },
             .graph = diamond()});
        const std::lock_guard lock(mutex);
        EXPECT_NEAR(loss_sum, place == 3 ? expected_loss : 0, 1e-12 * expected_loss);
        const Tensor expected = weights[static_cast<std::size_t>(place)].grad();
        const double largest = expected.abs().max().item<double>();
        ASSERT_GT(largest, 0);
        EXPECT_LE(stage.grad().sub(expected).abs().max().item<double>(), 1e-12 * largest) << place;
      });
}

// All four stages on one rank: it hands over to itself, in whatever order the list says.
TEST(Executor, OneRankHoldsAWholeGraph) {
  const auto batches = make_batches(2);
  const auto backend = comm::make_single_backend();
  const auto activations = backend->make_group({0}, "pp");
  const auto gradients = backend->make_group({0}, "pp#2");
  std::vector<std::unique_ptr<DiamondStage>> stages;
  std::vector<StageSlot> slots;
  ActionList list;
  const auto append = [&](int place, bool forward) {
    for (Action action : actions_of(place, 2)) {
      const bool is_forward = action.kind == ActionKind::kForward ||
                              action.kind == ActionKind::kSendForward ||
                              action.kind == ActionKind::kRecvForward;
      action.chunk = place;
      if (is_forward == forward) list.push_back(action);
    }
  };
  for (int place = 0; place < 4; ++place) {
    stages.push_back(std::make_unique<DiamondStage>(place));
    slots.push_back({.stage = stages.back().get(), .first_unit = place});
    append(place, true);
  }
  for (int place = 4; place-- > 0;) append(place, false);
  ASSERT_EQ(simulate({list}, {1, 2, 4}, {}, diamond()).problem, "");
  run_schedule(list, slots, {*activations, *gradients}, batches,
               {.policy = precision_policy("fp64"),
                .seed_of = [](const std::string&) { return tensor::scalar(1, DType::Double); },
                .graph = diamond()});
  for (const auto& stage : stages) EXPECT_GT(stage->grad().abs().max().item<double>(), 0);
}

TEST(Executor, RefusesEdgesThatTheStageHasNot) {
  const auto batches = make_batches(1);
  const auto backend = comm::make_single_backend();
  const auto activations = backend->make_group({0}, "pp");
  const auto gradients = backend->make_group({0}, "pp#2");
  DiamondStage stage(0);
  const StageSlot slot{.stage = &stage};
  const auto run = [&](const ActionList& list, StageGraph graph) {
    run_schedule(list, std::span(&slot, 1), {*activations, *gradients}, batches,
                 {.policy = precision_policy("fp64"),
                  .seed_of = [](const std::string&) { return tensor::scalar(1, DType::Double); },
                  .graph = std::move(graph)});
  };
  using K = ActionKind;
  EXPECT_THROW(run({{K::kRecvForward, 0, 0, 0}}, {}), Error) << "a chain of one";
  EXPECT_THROW(run({{K::kForward, 0, 0, 1}}, {}), Error);
  EXPECT_THROW(run({{K::kSendForward, 0, 0, -1}}, {}), Error);
  EXPECT_THROW(run({}, {{{7}, {}}}), Error) << "no such stage";
  EXPECT_THROW(run({}, diamond()), Error) << "four stages, one is here";
}

}  // namespace
}  // namespace pentatron::pipeline_parallel
