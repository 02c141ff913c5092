// SPDX-License-Identifier: Apache-2.0
// A whole training step (forward, backward, update) as one recorded graph.
#include <gtest/gtest.h>

#include <array>
#include <string>

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
  // Every sample is two documents, cut at another place in every step; a recorded step has room for
  // more. Segments of the math kernels stand in host code: theirs are the samples.
  [[nodiscard]] std::vector<Batch> batches(int step, bool documents) {
    std::vector<Batch> result;
    for (Batch& batch : support::micro_batches(engine_, step)) {
      if (!documents) {
        SequenceRows rows = batch.text().rows();
        rows.boundaries = rows.samples;
        batch.sequences[std::string(Batch::kText)] = SequenceLayout(rows);
      }
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
  PENTATRON_NEEDS_CARDS(1);
  const Device card = tensor::resolve_device("cuda", 0, 1);
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
      OnCard plain(config, card);
      for (int step = 0; step < kSteps; ++step) {
        launched.push_back(
            plain.engine().train_step(plain.batches(step, documents), inputs_of(step)));
      }
    }
    OnCard recorded(config, card);
    Engine& engine = recorded.engine();
    const std::vector<Batch> memory = recorded.batches(0, documents);
    tensor::StepGraph graph(card);
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
    }
    // Not one step again and again.
    EXPECT_NE(replayed[1].loss, replayed[2].loss);
    EXPECT_NE(replayed[1].num_valid_tokens, replayed[0].num_valid_tokens);
  }
}

}  // namespace
}  // namespace pentatron::training
