// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "pentatron/config/batch_schedule.h"
#include "pentatron/optimizer/schedule.h"
#include "pentatron/training/checkpointing.h"
#include "pentatron/training/data.h"
#include "pentatron/training/engine.h"
#include "pentatron/training/train_state.h"

// What a run must keep so that its checkpoints can be resumed; the trainer and Session stand on it.
namespace pentatron::training {

// The state before the first step: the run's identities, by which a checkpoint is compared.
[[nodiscard]] TrainState new_state(const config::RunConfig& config, const TrainingData& data,
                                   const tokenizers::Tokenizer& tokenizer);
// The same for samples of one's own, without a tokenizer.
[[nodiscard]] TrainState new_state(const config::RunConfig& config,
                                   const datasets::SampleSource& train);

// load_engine() into `engine` and `state`, which is new_state()'s. What follows from it is put into
// `config`: the run's length where it is one in samples, the checkpoint's schedule where that is
// asked for. Collective over the world.
[[nodiscard]] LoadResult load_run(Engine& engine, const config::BatchSchedule& batches,
                                  config::RunConfig& config, TrainState& state);

// Rates and weight decay of a run, once load_run() has been there.
class StepRates final {
 public:
  explicit StepRates(const config::RunConfig& config);
  // Of the next step.
  [[nodiscard]] StepInputs inputs(const TrainState& state) const;
  [[nodiscard]] const optimizer::LearningRateSchedule& schedule() const { return schedule_; }

 private:
  optimizer::LearningRateSchedule schedule_;
  double width_factor_;  // of the rate of what --use-mup scales
};

// After a step of `batch` samples.
void count_step(const config::RunConfig& config, const StepResult& result, std::int64_t batch,
                TrainState& state);
// kData for a loss or gradient that is not finite (with check_for_nan_in_loss_and_grad); after
// count_step().
void check_finite(const config::RunConfig& config, const StepResult& result, std::int64_t batch,
                  const TrainState& state);
// Keeps the largest loss and norm where --check-for-spiky-loss and --check-for-large-grads ask, and
// warns (where `tells`) of one that leaps; after count_step().
void check_spikes(const config::RunConfig& config, const StepResult& result, bool tells,
                  TrainState& state);
// Whether --iterations-to-skip names this iteration (from 1).
[[nodiscard]] bool passes_over(const config::RunConfig& config, std::int64_t iteration);
// After an iteration whose batch went by unread.
void count_passed_over(std::int64_t batch, TrainState& state);

// The set's batches from its sample `consumed` on. `on_share` hears what share of them is done.
[[nodiscard]] EvaluationResult evaluate_set(Engine& engine, const EvaluationSet& set,
                                            std::int64_t consumed,
                                            const std::function<void(double)>& on_share = {});

}  // namespace pentatron::training
