// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <vector>

#include "pentatron/training/test_support.h"

// Runs whose ranks have unlike micro-batches, against one process. Only tests include it.
namespace pentatron::training::testing_support {

struct Outcome {
  std::vector<double> losses, norms, evaluations;  // a number a step
  Tensors gradients, parameters;                   // of the first step; after the last one
  std::set<std::int64_t> rows;                     // of the micro-batches of all ranks
  std::set<std::size_t> counts;                    // of micro-batches, over ranks and steps
};

// A rank's micro-batches of the next step.
using NextBatches = std::function<std::vector<Batch>()>;

// Trains `steps` steps on every rank; each batch is evaluated before the step that trains on it.
inline Outcome outcome_of(const config::RunConfig& config, int steps,
                          const std::function<NextBatches(Engine&)>& make_stream) {
  Outcome outcome;
  std::mutex mutex;
  with_engine(config, [&](Engine& engine) {
    Outcome mine;
    const NextBatches next = make_stream(engine);
    for (int step = 0; step < steps; ++step) {
      const std::vector<Batch> batches = next();
      for (const Batch& batch : batches) mine.rows.insert(batch.num_tokens());
      mine.counts.insert(batches.size());
      if (step == 0) {
        (void)engine.forward_backward(batches);
        mine.gradients = engine.gather_gradients();
      }
      mine.evaluations.push_back(engine.evaluate(batches).loss_sum);
      const StepResult result = engine.train_step(batches, 0.01, kWeightDecay);
      mine.losses.push_back(result.loss);
      mine.norms.push_back(result.grad_norm);
    }
    mine.parameters = engine.gather_parameters();
    const std::lock_guard lock(mutex);
    mine.rows.insert(outcome.rows.begin(), outcome.rows.end());
    mine.counts.insert(outcome.counts.begin(), outcome.counts.end());
    outcome = std::move(mine);
  });
  return outcome;
}

inline void expect_same_outcome(const Outcome& got, const Outcome& expected) {
  ASSERT_EQ(got.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < got.losses.size(); ++step) {
    EXPECT_NEAR(got.losses[step] / expected.losses[step], 1.0, 1e-11) << step;
    EXPECT_NEAR(got.norms[step] / expected.norms[step], 1.0, 1e-10) << step;
    EXPECT_NEAR(got.evaluations[step] / expected.evaluations[step], 1.0, 1e-11) << step;
  }
  expect_equal(got.gradients, expected.gradients, "gradient of");
  expect_equal(got.parameters, expected.parameters, "weight");
}

}  // namespace pentatron::training::testing_support
