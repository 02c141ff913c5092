// SPDX-License-Identifier: Apache-2.0
// A whole training step (forward, backward, update) as one recorded graph.
#include <gtest/gtest.h>

#include "pentatron/tensor/device_queue.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

namespace support = testing_support;

constexpr int kSteps = 6;

StepInputs inputs_of(int step) { return {.lr = 0.01 / (1 + step), .weight_decay = 0.1}; }

class OnCard {
 public:
  OnCard(const config::RunConfig& config, Device device)
      : backend_(comm::make_single_backend()),
        context_(*backend_, comm::make_grids(config.parallel)),
        engine_(config, context_, device) {}
  Engine& engine() { return engine_; }
  [[nodiscard]] std::vector<BatchMeta> batches(int step) {
    std::vector<BatchMeta> result;
    for (BatchMeta& batch : support::micro_batches(engine_, step)) {
      // A recorded step has fixed lengths: samples are not cut at their documents.
      batch.cu_seqlens = batch.cu_samples;
      batch.max_seqlen = support::kSequence;
      result.push_back(to_device(std::move(batch), engine_.device()));
    }
    return result;
  }

 private:
  std::unique_ptr<comm::Backend> backend_;
  comm::ParallelContext context_;
  Engine engine_;
};

// Token tensors of a new step into the memory that the recorded step reads.
void copy_into(const std::vector<BatchMeta>& to, const std::vector<BatchMeta>& from) {
  ASSERT_EQ(to.size(), from.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    ASSERT_EQ(to[i].cu_seqlens, from[i].cu_seqlens) << "the recorded step has fixed lengths";
    const auto tensors = [](const BatchMeta& b) {
      return std::array{b.tokens, b.labels, b.loss_mask, b.positions, b.sample_ids, b.token_index};
    };
    const auto targets = tensors(to[i]);
    const auto sources = tensors(from[i]);
    for (std::size_t t = 0; t < targets.size(); ++t) targets[t].copy_(sources[t]);
  }
}

TEST(TrainingGraph, ReplayedStepsEqualLaunchedOnes) {
  PENTATRON_NEEDS_CARDS(1);
  const Device card = tensor::resolve_device("cuda", 0, 1);
  for (const char* precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    const config::RunConfig config = support::tiny_config({}, [&](config::RunConfig& c) {
      c.model.hidden_dropout = 0.1;
      c.model.attention_dropout = 0;
      c.training.precision = precision;
    });
    std::vector<StepResult> launched;
    {
      OnCard plain(config, card);
      for (int step = 0; step < kSteps; ++step) {
        launched.push_back(plain.engine().train_step(plain.batches(step), inputs_of(step)));
      }
    }
    OnCard recorded(config, card);
    Engine& engine = recorded.engine();
    const std::vector<BatchMeta> memory = recorded.batches(0);
    tensor::StepGraph graph(card);
    engine.write_inputs(inputs_of(0));
    graph.warm_up([&] { engine.launch_prepared_step(memory); });  // the first step
    std::vector<StepResult> replayed{engine.read_step()};
    graph.capture([&] { engine.launch_prepared_step(memory); });
    for (int step = 1; step < kSteps; ++step) {
      copy_into(memory, recorded.batches(step));
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
    }
    // Not one step again and again.
    EXPECT_NE(replayed[1].loss, replayed[2].loss);
    EXPECT_NE(replayed[1].num_valid_tokens, replayed[0].num_valid_tokens);
  }
}

}  // namespace
}  // namespace pentatron::training
