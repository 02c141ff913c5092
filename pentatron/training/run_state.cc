// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run_state.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/sha256.h"
#include "pentatron/comm/group.h"
#include "pentatron/config/choices.h"
#include "pentatron/optimizer/width_scaling.h"
#include "pentatron/training/spikes.h"
#include "pentatron/training/teacher.h"

namespace pentatron::training {
namespace {

TrainState options_state(const config::RunConfig& config) {
  TrainState state;
  state.model = model_identity(config);
  state.run = run_identity(config);
  state.schedule = schedule_identity(config);
  return state;
}

}  // namespace

TrainState new_state(const config::RunConfig& config, const TrainingData& data,
                     const tokenizers::Tokenizer& tokenizer) {
  TrainState state = options_state(config);
  state.data_identity = data.identity();
  if (data.train() != nullptr) {
    state.data_sampled = data.files().front().sampled;
    state.data_whole = data.files().front().whole;
    state.train_samples_asked = data.counts().train;
    state.train_samples_before.assign(data.planned().begin(), data.planned().end() - 1);
    state.data_identity_before = data.identity_before();
  }
  state.tokenizer = tokenizer.identity_hash();
  return state;
}

TrainState new_state(const config::RunConfig& config, const datasets::SampleSource& train) {
  TrainState state = options_state(config);
  const nlohmann::json json = {{"own samples", train.identity()}};
  state.data_identity =
      sha256_hex(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return state;
}

LoadResult load_run(Engine& engine, const config::BatchSchedule& batches, config::RunConfig& config,
                    TrainState& state) {
  check_agreement(engine.context(), state.data_identity, "the order of their data");
  if (engine.teacher() != nullptr && engine.context().world().rank() == 0) {
    const std::string warning = engine.teacher()->tokenizer_warning(state.tokenizer);
    if (!warning.empty()) log::warn("{}", warning);
  }
  LoadResult result = load_engine(engine, state);
  // What this run reads, not what the checkpoint knew: that may be less.
  TrainState read = result.state;
  read.data_sampled = state.data_sampled;
  read.data_whole = state.data_whole;
  read.train_samples_asked = state.train_samples_asked;
  read.train_samples_before = state.train_samples_before;
  // Where epochs were appended, from here on the data has another identity than the checkpoint's.
  if (!state.data_identity_before.empty()) read.data_identity = state.data_identity;
  state = std::move(read);
  // A length in samples ends where the samples do, whatever batches came before.
  config::TrainingConfig& t = config.training;
  if (result.loaded && t.train_samples > 0) {
    t.train_iters =
        state.iteration + batches.iterations_for(t.train_samples, state.consumed_train_samples);
  }
  if (result.loaded && config.optimizer.use_checkpoint_opt_param_scheduler) {
    apply_schedule(state.schedule, config);
  }
  return result;
}

StepRates::StepRates(const config::RunConfig& config)
    : schedule_(config.optimizer, config.training, config::asked_batch_schedule(config)),
      width_factor_(optimizer::width_scaling(config.model, config.optimizer).lr_factor) {}

StepInputs StepRates::inputs(const TrainState& state) const {
  const std::int64_t trained = state.scheduler_samples;
  return {.lr = schedule_.lr(trained),
          .weight_decay = schedule_.weight_decay(trained),
          .decoupled_lr = schedule_.decoupled_lr(trained),
          .width_lr = schedule_.scaled_lr(trained, width_factor_)};
}

void count_step(const config::RunConfig& config, const StepResult& result, std::int64_t batch,
                TrainState& state) {
  ++state.iteration;
  state.consumed_train_samples += batch;
  if (result.skipped) {
    ++state.skipped_iterations;
  } else {
    ++state.num_updates;
    state.scheduler_samples += batch;
  }
  // Overflows of gradients, which loss scaling is there for, are no NaN iterations.
  const bool is_nan = config::precision(config.training) == config::Precision::kFp16
                          ? !std::isfinite(result.loss)
                          : !result.finite;
  if (is_nan) ++state.nan_iterations;
}

void check_finite(const config::RunConfig& config, const StepResult& result, std::int64_t batch,
                  const TrainState& state) {
  PENTATRON_CHECK(
      result.finite || !config.training.check_for_nan_in_loss_and_grad, kData,
      "iteration {}: the {} is {}; no update was made. Resume from the last checkpoint with a "
      "lower --lr, "
      "look at the data of samples {} to {}, or go on with --no-check-for-nan-in-loss-and-grad.",
      state.iteration, std::isfinite(result.loss) ? "gradient norm" : "loss",
      std::isfinite(result.loss) ? result.grad_norm : result.loss,
      state.consumed_train_samples - batch, state.consumed_train_samples - 1);
}

void check_spikes(const config::RunConfig& config, const StepResult& result, bool tells,
                  TrainState& state) {
  const config::TrainingConfig& t = config.training;
  const auto check = [&](bool asked, double value, double& largest, const char* what,
                         const char* option) {
    if (!asked || !is_spike(value, largest) || !tells) return;
    log::warn("iteration {}: the {} {} is more than {} times the largest so far, {} ({})",
              state.iteration, what, value, kSpikeFactor, largest, option);
  };
  check(t.check_for_spiky_loss, result.loss, state.largest_loss, "loss", "--check-for-spiky-loss");
  check(t.check_for_large_grads, result.grad_norm, state.largest_grad_norm, "gradient norm",
        "--check-for-large-grads");
}

bool passes_over(const config::RunConfig& config, std::int64_t iteration) {
  const std::vector<std::string>& skipped = config.training.iterations_to_skip;
  return std::find(skipped.begin(), skipped.end(), std::to_string(iteration)) != skipped.end();
}

void count_passed_over(std::int64_t batch, TrainState& state) {
  ++state.iteration;
  state.consumed_train_samples += batch;
  state.skipped_train_samples += batch;
}

EvaluationResult evaluate_set(Engine& engine, const EvaluationSet& set, std::int64_t consumed,
                              const std::function<void(double)>& on_share) {
  BatchStream stream(*set.dataset, engine.config(), engine.context().data_rank(), consumed,
                     engine.policy(), BatchStream::Use::kEvaluation, kCpu,
                     engine.dynamic_context());
  EvaluationResult sum;
  for (std::int64_t i = 0; i < set.iterations; ++i) {
    sum += engine.evaluate(stream.next());
    if (on_share) on_share(static_cast<double>(i + 1) / static_cast<double>(set.iterations));
  }
  return sum;
}

}  // namespace pentatron::training
