// SPDX-License-Identifier: Apache-2.0
// A whole training step (forward, backward, update) as one recorded graph.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "pentatron/models/registry.h"
#include "pentatron/nn/stage.h"
#include "pentatron/tensor/device_queue.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/llama_test_support.h"

namespace pentatron::training {
namespace {

namespace support = testing_support;

constexpr int kSteps = 6;

StepInputs inputs_of(int step) { return {.lr = 0.01 / (1 + step), .weight_decay = 0.1}; }

// A GPT beside a buffer that commits how many micro-batches have passed.
class CountingStage final : public nn::Stage {
 public:
  CountingStage(const config::RunConfig& config, const parallel_layers::LeafContext& context,
                const config::StagePlan& stage)
      : gpt_(add_child(models::make_stage("gpt", config.model, context, stage))),
        total_(tensor::zeros({}, DType::Double, context.device())) {
    declare_scalar({.name = "micro-batches", .kind = nn::ScalarKind::kSum});
  }
  nn::Bundle forward(const nn::Bundle& input, nn::StepContext& step) override {
    step.add_sum("micro-batches", tensor::ones({}, DType::Double, total_.device()));
    return gpt_.forward(input, step);
  }
  nn::BundleSpec input_spec(const Batch& batch) const override { return gpt_.input_spec(batch); }
  nn::BundleSpec output_spec(const Batch& batch) const override { return gpt_.output_spec(batch); }
  std::vector<nn::Unit> units() override { return gpt_.units(); }
  [[nodiscard]] double total() const { return total_.item<double>(); }

 private:
  void commit_own(const nn::StepOutcome& outcome) override {
    outcome.update(total_, total_.add(outcome.sum_of("micro-batches")));
  }

  nn::Stage& gpt_;
  Tensor total_;
};

class OnGpu {
 public:
  OnGpu(const config::RunConfig& config, Device device, const StageFactory& make_stage = {})
      : backend_(comm::make_single_backend()),
        context_(*backend_, comm::make_grids(config.parallel)),
        engine_(config, context_, device, make_stage) {}
  Engine& engine() { return engine_; }
  // Every sample is two documents, cut at another place in every step; a recorded step has room for
  // more. Segments of the math kernels stand in host code: theirs are the samples.
  [[nodiscard]] std::vector<Batch> batches(int step, bool documents) {
    std::vector<Batch> result;
    for (Batch& batch : support::micro_batches(engine_, step)) {
      if (!documents) support::join_documents(batch);
      result.push_back(to_device(std::move(batch), engine_.device(),
                                 {.segments = 7, .length = support::kSequence}));
    }
    return result;
  }

 private:
  std::unique_ptr<comm::Backend> backend_;
  comm::ParallelContext context_;
  Engine engine_;
};

// Tensors of a new step into the memory that the recorded step reads.
void copy_into(const std::vector<Batch>& to, const std::vector<Batch>& from) {
  ASSERT_EQ(to.size(), from.size());
  const auto tensors = [](const Batch& b) {
    const SequenceLayout& text = b.text();
    return std::array{b.tokens(),
                      b.labels(),
                      b.loss_mask(),
                      text.positions(),
                      text.sample_ids(),
                      text.token_index(),
                      text.attention()->q_boundaries};
  };
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto targets = tensors(to[i]);
    const auto sources = tensors(from[i]);
    for (std::size_t t = 0; t < targets.size(); ++t) targets[t].copy_(sources[t]);
  }
}

TEST(TrainingGraph, ReplayedStepsEqualLaunchedOnes) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = tensor::resolve_device("cuda", 0, 1);
  for (const char* precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    const bool documents = std::string(precision) == "bf16";  // the fused attention
    const config::RunConfig config = support::tiny_config({}, [&](config::RunConfig& c) {
      c.model.hidden_dropout = 0.1;
      c.model.attention_dropout = 0;
      c.training.precision = precision;
    });
    std::vector<StepResult> launched;
    {
      OnGpu plain(config, gpu);
      for (int step = 0; step < kSteps; ++step) {
        launched.push_back(
            plain.engine().train_step(plain.batches(step, documents), inputs_of(step)));
      }
    }
    OnGpu recorded(config, gpu);
    Engine& engine = recorded.engine();
    const std::vector<Batch> memory = recorded.batches(0, documents);
    tensor::StepGraph graph(gpu);
    engine.write_inputs(inputs_of(0));
    graph.warm_up([&] { engine.launch_prepared_step(memory); });  // the first step
    std::vector<StepResult> replayed{engine.read_step()};
    graph.capture([&] { engine.launch_prepared_step(memory); });
    for (int step = 1; step < kSteps; ++step) {
      copy_into(memory, recorded.batches(step, documents));
      engine.write_inputs(inputs_of(step));
      graph.replay();
      replayed.push_back(engine.read_step());
    }
    for (std::size_t step = 0; step < launched.size(); ++step) {
      EXPECT_NEAR(replayed[step].loss, launched[step].loss, 1e-5 * launched[step].loss) << step;
      EXPECT_NEAR(replayed[step].grad_norm, launched[step].grad_norm,
                  1e-3 * launched[step].grad_norm)
          << step;
      EXPECT_EQ(replayed[step].num_valid_tokens, launched[step].num_valid_tokens) << step;
      for (const nn::StepScalar& scalar : launched[step].scalars) {
        const std::optional<double> found = replayed[step].scalars.find(scalar.name);
        ASSERT_TRUE(found) << scalar.name;
        EXPECT_NEAR(*found, scalar.value, 1e-3 * std::abs(scalar.value)) << scalar.name;
      }
    }
    // Not one step again and again.
    EXPECT_NE(replayed[1].loss, replayed[2].loss);
    EXPECT_NE(replayed[1].num_valid_tokens, replayed[0].num_valid_tokens);
  }
}

// Buffers are committed by the recorded step, and not by one that is skipped.
TEST(TrainingGraph, ReplayedStepsCommitBuffers) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu = tensor::resolve_device("cuda", 0, 1);
  const config::RunConfig config = support::tiny_config({}, [](config::RunConfig& c) {
    c.model.attention_dropout = 0;
    c.training.check_for_nan_in_loss_and_grad = false;
  });
  OnGpu recorded(config, gpu,
                 [&](const parallel_layers::LeafContext& context, const config::StagePlan& stage) {
                   return std::make_unique<CountingStage>(config, context, stage);
                 });
  Engine& engine = recorded.engine();
  const auto& stage = static_cast<const CountingStage&>(engine.stages().at(0));
  const std::vector<Batch> memory = recorded.batches(0, /*documents=*/false);
  const auto per_step = static_cast<double>(memory.size());
  tensor::StepGraph graph(gpu);
  engine.write_inputs(inputs_of(0));
  graph.warm_up([&] { engine.launch_prepared_step(memory); });
  (void)engine.read_step();
  EXPECT_EQ(stage.total(), per_step);
  graph.capture([&] { engine.launch_prepared_step(memory); });
  const Tensor mask = memory[0].loss_mask().clone();
  for (int step = 1; step < kSteps; ++step) {
    const bool bad = step == 2;
    if (bad) memory[0].loss_mask().fill_(std::nan(""));
    engine.write_inputs(inputs_of(step));
    graph.replay();
    const StepResult result = engine.read_step();
    EXPECT_EQ(result.skipped, bad);
    EXPECT_EQ(result.scalars.find("micro-batches"), per_step);
    EXPECT_EQ(stage.total(), per_step * (step < 2 ? step + 1 : step));
    memory[0].loss_mask().copy_(mask);
  }
}

}  // namespace
}  // namespace pentatron::training
