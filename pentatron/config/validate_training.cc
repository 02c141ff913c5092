// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/validate_training.h"

namespace pentatron::config {
namespace {

constexpr std::int64_t kMaxBatch = 100'000'000;
constexpr std::int64_t kMaxSteps = 10'000'000'000;

bool resolve_batch(RunConfig& config, Problems& problems) {
  TrainingConfig& training = config.training;
  const std::int64_t dp = config.parallel.data_parallel_size;
  if (training.micro_batch_size > kMaxBatch || training.global_batch_size > kMaxBatch) {
    problems.add(fmt::format("--micro-batch-size {} and --global-batch-size {} must be at most {}",
                             training.micro_batch_size, training.global_batch_size, kMaxBatch));
    return false;
  }
  if (training.micro_batch_size < 1 || training.global_batch_size < 0) {
    problems.add(
        fmt::format("--micro-batch-size {} must be at least 1 and --global-batch-size {} "
                    "at least 0",
                    training.micro_batch_size, training.global_batch_size));
    return false;
  }
  const std::int64_t pass = training.micro_batch_size * dp;
  if (training.global_batch_size == 0) training.global_batch_size = pass;
  if (training.global_batch_size % pass == 0) return true;
  problems.add(
      fmt::format("--global-batch-size {} does not divide by --micro-batch-size {} x "
                  "data-parallel size {}",
                  training.global_batch_size, training.micro_batch_size, dp));
  return false;
}

void check_length(const RunConfig& config, Problems& problems) {
  const TrainingConfig& training = config.training;
  if (training.train_iters > kMaxSteps) {
    problems.add(
        fmt::format("--train-iters {} is too large: at most {}", training.train_iters, kMaxSteps));
  }
  if (training.train_iters > 0 && training.train_samples > 0) {
    problems.add(fmt::format("--train-iters {} and --train-samples {} exclude each other: give one",
                             training.train_iters, training.train_samples));
  } else if (training.train_iters == 0 && training.train_samples == 0 && !training.skip_train &&
             !problems.about("train_iters") && !problems.about("train_samples")) {
    problems.add("the length of the run is missing: give --train-iters or --train-samples");
  }
  if (training.train_samples > 0 && training.train_samples < training.global_batch_size) {
    problems.add(fmt::format("--train-samples {} is less than one step of --global-batch-size {}",
                             training.train_samples, training.global_batch_size));
  }
}

// Lengths in iterations belong to --train-iters, lengths in samples to --train-samples.
void check_units(const RunConfig& config, Problems& problems) {
  const OptimizerConfig& optimizer = config.optimizer;
  const bool in_samples = config.training.train_samples > 0 && config.training.train_iters == 0;
  const auto refuse = [&](std::string_view option, std::string_view dest, std::int64_t value,
                          std::string_view instead) {
    if (value == 0 || problems.about(dest)) return;
    problems.add(fmt::format("{} {} cannot be mixed with {}: use {}", option, value,
                             in_samples ? "--train-samples" : "--train-iters", instead),
                 dest);
  };
  if (in_samples) {
    refuse("--lr-decay-iters", "lr_decay_iters", optimizer.lr_decay_iters, "--lr-decay-samples");
    refuse("--lr-warmup-iters", "lr_warmup_iters", optimizer.lr_warmup_iters,
           "--lr-warmup-samples");
  } else {
    refuse("--lr-decay-samples", "lr_decay_samples", optimizer.lr_decay_samples,
           "--lr-decay-iters");
    refuse("--lr-warmup-samples", "lr_warmup_samples", optimizer.lr_warmup_samples,
           "--lr-warmup-iters");
  }
}

void resolve_schedule(RunConfig& config, Problems& problems) {
  OptimizerConfig& optimizer = config.optimizer;
  const TrainingConfig& training = config.training;
  if (optimizer.lr <= 0 && !training.skip_train && !problems.about("lr")) {
    problems.add("--lr is missing");
  }
  if (optimizer.lr > 0 && optimizer.min_lr > optimizer.lr) {
    problems.add(fmt::format("--min-lr {} is above --lr {}", optimizer.min_lr, optimizer.lr));
  }
  if (optimizer.lr > 0 && optimizer.lr_warmup_init > optimizer.lr) {
    problems.add(fmt::format("--lr-warmup-init {} is above --lr {}", optimizer.lr_warmup_init,
                             optimizer.lr));
  }
  if (optimizer.lr_warmup_fraction &&
      (optimizer.lr_warmup_iters > 0 || optimizer.lr_warmup_samples > 0)) {
    problems.add(
        fmt::format("--lr-warmup-fraction {} excludes --lr-warmup-iters and "
                    "--lr-warmup-samples: give one",
                    *optimizer.lr_warmup_fraction));
  }
  if (optimizer.override_opt_param_scheduler && optimizer.use_checkpoint_opt_param_scheduler) {
    problems.add(
        "--override-opt-param-scheduler and --use-checkpoint-opt-param-scheduler exclude "
        "each other: give one");
  }
  if (optimizer.lr_decay_iters == 0) optimizer.lr_decay_iters = training.train_iters;
  if (optimizer.lr_decay_samples == 0) optimizer.lr_decay_samples = training.train_samples;
  const bool in_samples = training.train_samples > 0;
  const std::int64_t decay = in_samples ? optimizer.lr_decay_samples : optimizer.lr_decay_iters;
  const std::int64_t warmup = in_samples ? optimizer.lr_warmup_samples : optimizer.lr_warmup_iters;
  if (decay > 0 && warmup >= decay) {
    const std::string_view unit = in_samples ? "samples" : "iters";
    problems.add(
        fmt::format("--lr-warmup-{} {} must be below the decay of {} (--lr-decay-{} or "
                    "--train-{})",
                    unit, warmup, decay, unit, unit));
  }
}

void resolve_data(RunConfig& config, const Origins& origins, Problems& problems) {
  DataConfig& data = config.data;
  if (data.mock_data) {
    if (!origins.contains("split") && data.split == DataConfig{}.split) data.split = "1,1,1";
  } else if (data.data_path.empty() && !problems.about("data_path")) {
    problems.add("--data-path is missing (or --mock-data)");
  }
  if (data.tokenizer_type.empty() && !problems.about("tokenizer_type")) {
    problems.add("--tokenizer-type is missing");
  }
}

void check_checkpoint(const CheckpointConfig& checkpoint, Problems& problems) {
  if (!checkpoint.save.empty() && checkpoint.save_interval == 0 &&
      !problems.about("save_interval")) {
    problems.add("--save needs --save-interval");
  }
  if (checkpoint.save_retain_interval > 0 && checkpoint.save_interval > 0 &&
      checkpoint.save_retain_interval % checkpoint.save_interval != 0) {
    problems.add(fmt::format("--save-retain-interval {} does not divide by --save-interval {}",
                             checkpoint.save_retain_interval, checkpoint.save_interval));
  }
}

// The model writes on one rank, which must hold all of it.
void check_samples(const RunConfig& config, Problems& problems) {
  if (config.logging.sample_prompt.empty()) return;
  const ParallelConfig& p = config.parallel;
  if (p.tensor_model_parallel_size > 1 || p.pipeline_model_parallel_size > 1 ||
      p.context_parallel_size > 1 || p.expert_model_parallel_size > 1) {
    problems.add(
        fmt::format("--sample-prompt needs the whole model on each rank, not tensor {} x pipeline "
                    "{} x context {} x expert {} parallel: drop it, and use `pentatron generate` "
                    "on a checkpoint",
                    p.tensor_model_parallel_size, p.pipeline_model_parallel_size,
                    p.context_parallel_size, p.expert_model_parallel_size),
        "sample_prompt");
  }
}

}  // namespace

void resolve_training(RunConfig& config, const Origins& origins, bool layout_fine,
                      Problems& problems) {
  if (layout_fine && resolve_batch(config, problems)) check_length(config, problems);
  check_units(config, problems);
  resolve_schedule(config, problems);
  resolve_data(config, origins, problems);
  check_checkpoint(config.checkpoint, problems);
  check_samples(config, problems);
}

}  // namespace pentatron::config
