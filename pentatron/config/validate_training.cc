// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/validate_training.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/batch_schedule.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/pipeline_layout.h"

namespace pentatron::config {
namespace {

constexpr std::int64_t kMaxBatch = 100'000'000;
constexpr std::int64_t kMaxSteps = 10'000'000'000;

// Whether a size can be cut into micro-batches on all ranks, lowered if that is asked for.
bool fits(const TrainingConfig& training, std::int64_t size, std::int64_t pass) {
  return training.decrease_batch_size_if_needed ? size >= pass : size % pass == 0;
}

// What to do about a size that does not fit.
std::string_view remedy(const TrainingConfig& training) {
  return training.decrease_batch_size_if_needed
             ? "it cannot be lowered to a multiple, being smaller: raise it"
             : "change it, or let --decrease-batch-size-if-needed lower it";
}

// Each size of the schedule divides; the last is the run's global batch size.
bool resolve_batch_schedule(RunConfig& config, Problems& problems) {
  TrainingConfig& training = config.training;
  if (training.step_batch_size_schedule.empty()) return true;
  if (config.model.seq_length < 1) return false;
  std::vector<std::int64_t> sizes;
  try {
    sizes = BatchSchedule(training.step_batch_size_schedule, config.model.seq_length).sizes();
  } catch (const Error& error) {
    problems.add(error.what(), "step_batch_size_schedule");
    return false;
  }
  const std::int64_t last = sizes.back();
  if (training.global_batch_size != 0 && training.global_batch_size != last) {
    problems.add(
        fmt::format("--global-batch-size {} and --step-batch-size-schedule \"{}\", which "
                    "ends with {}: drop one of the two",
                    training.global_batch_size, training.step_batch_size_schedule, last));
    return false;
  }
  training.global_batch_size = last;
  const std::int64_t pass = training.micro_batch_size * config.parallel.data_parallel_size;
  for (const std::int64_t size : sizes) {
    if (size <= kMaxBatch && fits(training, size, pass)) continue;
    problems.add(
        fmt::format("--step-batch-size-schedule: the batch size {} does not divide by "
                    "--micro-batch-size {} x data-parallel size {} (or is above {}); {}",
                    size, training.micro_batch_size, config.parallel.data_parallel_size, kMaxBatch,
                    remedy(training)));
    return false;
  }
  return true;
}

bool resolve_evaluation_batch(TrainingConfig& training, std::int64_t dp, Problems& problems) {
  if (training.eval_micro_batch_size == 0) {
    training.eval_micro_batch_size = training.micro_batch_size;
  }
  if (training.eval_global_batch_size == 0) {
    training.eval_global_batch_size = training.global_batch_size;
    const std::int64_t pass = training.eval_micro_batch_size * dp;
    if (training.decrease_batch_size_if_needed && pass > 0 &&
        training.eval_global_batch_size > pass) {
      training.eval_global_batch_size -= training.eval_global_batch_size % pass;
    }
  }
  const bool in_range = training.eval_micro_batch_size >= 1 &&
                        training.eval_micro_batch_size <= kMaxBatch &&
                        training.eval_global_batch_size <= kMaxBatch;
  if (in_range && training.eval_global_batch_size % (training.eval_micro_batch_size * dp) == 0) {
    return true;
  }
  problems.add(
      fmt::format("--eval-global-batch-size {} does not divide by --eval-micro-batch-size {} x "
                  "data-parallel size {} (or one of them is above {}); they are the training's "
                  "unless given",
                  training.eval_global_batch_size, training.eval_micro_batch_size, dp, kMaxBatch));
  return false;
}

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
  if (!resolve_batch_schedule(config, problems)) return false;
  const std::int64_t pass = training.micro_batch_size * dp;
  if (training.global_batch_size == 0) training.global_batch_size = pass;
  if (fits(training, training.global_batch_size, pass)) {
    return resolve_evaluation_batch(training, dp, problems);
  }
  problems.add(
      fmt::format("--global-batch-size {} does not divide by --micro-batch-size {} x "
                  "data-parallel size {}; {}",
                  training.global_batch_size, training.micro_batch_size, dp, remedy(training)));
  return false;
}

// A rank with several stages takes micro-batches through them in groups.
void check_interleaving(const RunConfig& config, Problems& problems) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.pipeline_schedule == "gpipe") return;  // takes any number
  try {
    if (num_pipeline_chunks(config.model, parallel) == 1) return;
  } catch (const Error&) {
    return;  // said already
  }
  const std::int64_t pp = parallel.pipeline_model_parallel_size;
  const std::int64_t group = parallel.microbatch_group_size_per_vp_stage > 0
                                 ? parallel.microbatch_group_size_per_vp_stage
                                 : pp;
  if (group < pp) {
    problems.add(
        fmt::format("--microbatch-group-size-per-virtual-pipeline-stage {} is below "
                    "--pipeline-model-parallel-size {}",
                    group, pp));
    return;
  }
  for (const std::int64_t size : batch_schedule(config).sizes()) {
    const std::int64_t count =
        size / (config.training.micro_batch_size * parallel.data_parallel_size);
    const std::int64_t rest = count % group;
    if (rest == 0 || rest >= pp) continue;
    problems.add(fmt::format(
        "a batch of {} samples gives each pipeline {} micro-batches; with virtual stages they go "
        "in groups of {} (--microbatch-group-size-per-virtual-pipeline-stage), and the rest, {}, "
        "must be 0 or at least --pipeline-model-parallel-size {}: change --global-batch-size",
        size, count, group, rest, pp));
  }
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
  const std::int64_t first = batch_schedule(config).size_at(0);
  if (training.train_samples > 0 && training.train_samples < first) {
    problems.add(fmt::format("--train-samples {} is less than one step of --global-batch-size {}",
                             training.train_samples, first));
  }
}

// Lengths in iterations belong to --train-iters, lengths in samples to --train-samples.
void check_units(const RunConfig& config, Problems& problems) {
  const OptimizerConfig& optimizer = config.optimizer;
  const bool in_samples = config.training.train_samples > 0 && config.training.train_iters == 0;
  const auto refuse = [&](std::string_view option, std::string_view dest, std::int64_t value,
                          std::string_view instead) {
    if (value == 0 || problems.about(dest)) return;
    problems.add(
        fmt::format("{} {} cannot be mixed with {} {}: use {}", option, value,
                    in_samples ? "--train-samples" : "--train-iters",
                    in_samples ? config.training.train_samples : config.training.train_iters,
                    instead),
        dest);
  };
  if (in_samples) {
    refuse("--lr-decay-iters", "lr_decay_iters", optimizer.lr_decay_iters, "--lr-decay-samples");
    refuse("--lr-warmup-iters", "lr_warmup_iters", optimizer.lr_warmup_iters,
           "--lr-warmup-samples");
    refuse("--lr-wsd-decay-iters", "lr_wsd_decay_iters", optimizer.lr_wsd_decay_iters,
           "--lr-wsd-decay-samples");
  } else {
    refuse("--lr-decay-samples", "lr_decay_samples", optimizer.lr_decay_samples,
           "--lr-decay-iters");
    refuse("--lr-warmup-samples", "lr_warmup_samples", optimizer.lr_warmup_samples,
           "--lr-warmup-iters");
    refuse("--lr-wsd-decay-samples", "lr_wsd_decay_samples", optimizer.lr_wsd_decay_samples,
           "--lr-wsd-decay-iters");
  }
}

void check_weight_decay(const OptimizerConfig& optimizer, Problems& problems) {
  const bool start = optimizer.start_weight_decay.has_value();
  const bool end = optimizer.end_weight_decay.has_value();
  if (optimizer.weight_decay_incr_style == "constant") {
    if (!start && !end) return;
    problems.add(
        "--start-weight-decay and --end-weight-decay need --weight-decay-incr-style linear or "
        "cosine; a constant weight decay is --weight-decay");
  } else if (!start || !end) {
    problems.add(
        fmt::format("--weight-decay-incr-style {} needs --start-weight-decay and "
                    "--end-weight-decay",
                    optimizer.weight_decay_incr_style));
  }
}

void check_decoupled(const OptimizerConfig& optimizer, Problems& problems) {
  if (!optimizer.decoupled_lr) {
    if (optimizer.decoupled_min_lr) {
      problems.add("--decoupled-min-lr needs --decoupled-lr", "decoupled_min_lr");
    }
    return;
  }
  const double lowest = optimizer.decoupled_min_lr.value_or(optimizer.min_lr);
  if (lowest > *optimizer.decoupled_lr) {
    problems.add(fmt::format("--decoupled-min-lr {} (or --min-lr) is above --decoupled-lr {}",
                             lowest, *optimizer.decoupled_lr));
  }
  if (optimizer.lr_warmup_init > *optimizer.decoupled_lr) {
    problems.add(fmt::format("--lr-warmup-init {} is above --decoupled-lr {}",
                             optimizer.lr_warmup_init, *optimizer.decoupled_lr));
  }
}

void check_wsd(const OptimizerConfig& optimizer, bool in_samples, std::int64_t decay,
               Problems& problems) {
  if (optimizer.lr_decay_style != "WSD") return;
  const std::string_view unit = in_samples ? "samples" : "iters";
  const std::int64_t window =
      in_samples ? optimizer.lr_wsd_decay_samples : optimizer.lr_wsd_decay_iters;
  if (window < 1) {
    problems.add(fmt::format("--lr-decay-style WSD needs --lr-wsd-decay-{}", unit));
  } else if (decay > 0 && window > decay) {
    problems.add(
        fmt::format("--lr-wsd-decay-{} {} is above the whole decay of {}", unit, window, decay));
  }
}

void check_loss_scale(OptimizerConfig& optimizer, TrainingConfig& training, Problems& problems) {
  // An overflow is how the dynamic scale finds its level: no reason to end the run.
  if (precision(training) == Precision::kFp16) training.check_for_nan_in_loss_and_grad = false;
  if (optimizer.min_loss_scale > optimizer.initial_loss_scale) {
    problems.add(fmt::format("--min-loss-scale {} is above --initial-loss-scale {}",
                             optimizer.min_loss_scale, optimizer.initial_loss_scale));
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
    const bool iters = optimizer.lr_warmup_iters > 0;
    problems.add(fmt::format("--lr-warmup-fraction {} and {} {} exclude each other: give one",
                             *optimizer.lr_warmup_fraction,
                             iters ? "--lr-warmup-iters" : "--lr-warmup-samples",
                             iters ? optimizer.lr_warmup_iters : optimizer.lr_warmup_samples));
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
  // A warm-up as long as the run is all there is: nothing decays.
  if (decay > 0 && warmup > decay) {
    const std::string_view unit = in_samples ? "samples" : "iters";
    problems.add(
        fmt::format("--lr-warmup-{} {} is above the decay of {} (--lr-decay-{} or --train-{})",
                    unit, warmup, decay, unit, unit));
  }
  check_wsd(optimizer, in_samples, decay, problems);
  check_decoupled(optimizer, problems);
  check_weight_decay(optimizer, problems);
  check_loss_scale(optimizer, config.training, problems);
}

bool has_parts_by_path(const DataConfig& data) {
  return !data.train_data_path.empty() || !data.valid_data_path.empty() ||
         !data.test_data_path.empty();
}

// --train-data-path, --valid-data-path and --test-data-path stand for --data-path and --split.
void check_parts_by_path(const RunConfig& config, Problems& problems) {
  const DataConfig& data = config.data;
  if (!data.data_path.empty() || !data.data_args_path.empty()) {
    problems.add(
        "--data-path excludes --train-data-path, --valid-data-path and --test-data-path: give "
        "either",
        "data_path");
  }
  if (!data.per_split_data_args_path.empty()) {
    problems.add(
        "--per-split-data-args-path names the corpora of all parts: drop --train-data-path, "
        "--valid-data-path and --test-data-path",
        "per_split_data_args_path");
  }
  if (data.train_data_path.empty() && !config.training.skip_train) {
    problems.add("--valid-data-path and --test-data-path need --train-data-path (or --skip-train)");
  }
}

// --data-path, or one of the two files.
void check_one_source(const DataConfig& data, Problems& problems) {
  const int sources = static_cast<int>(!data.data_path.empty()) +
                      static_cast<int>(!data.data_args_path.empty()) +
                      static_cast<int>(!data.per_split_data_args_path.empty());
  if (sources > 1) {
    problems.add(
        "--data-path, --data-args-path and --per-split-data-args-path exclude each other: give "
        "one");
  } else if (sources == 0 && !problems.about("data_path")) {
    problems.add("--data-path is missing (or --mock-data)");
  }
}

void check_validation_sets(const RunConfig& config, Problems& problems) {
  const DataConfig& data = config.data;
  const std::size_t sets = data.valid_data_path.size();
  const bool several = config.training.multiple_validation_sets;
  if (several && sets == 0 && data.per_split_data_args_path.empty()) {
    problems.add("--multiple-validation-sets needs --valid-data-path with a corpus for each set");
  }
  if (!data.validation_set_names.empty() && data.per_split_data_args_path.empty() &&
      (!several || data.validation_set_names.size() != sets)) {
    problems.add(fmt::format(
        "--validation-set-names has {} names for {} corpora of --valid-data-path; it needs "
        "--multiple-validation-sets and a name for each",
        data.validation_set_names.size(), several ? sets : 0));
  }
}

// --dataloader-inter-document-masking beside what tells documents in another way.
void check_document_borders(const RunConfig& config, Problems& problems) {
  if (!config.data.dataloader_inter_document_masking) return;
  const std::pair<bool, std::string_view> others[] = {
      {config.model.reset_position_ids,
       "counts positions anew in each document by itself: drop --reset-position-ids"},
      {config.model.reset_attention_mask,
       "takes the borders of documents from the index, --reset-attention-mask from "
       "end-of-document tokens: drop one"},
      {config.data.sft,
       "is for running text, and --sft keeps conversations apart by itself: drop it"},
      {config.data.fim_data,
       "needs documents where the index says, and --fim-data moves their tokens: drop one"}};
  for (const auto& [given, why] : others) {
    if (given) problems.add(fmt::format("--dataloader-inter-document-masking {}", why));
  }
}

// Samples that are made otherwise than of running text.
void check_sample_kinds(const RunConfig& config, Problems& problems) {
  const DataConfig& data = config.data;
  if (data.sft && tokenizer_kind(data) != TokenizerKind::kSft &&
      !problems.about("tokenizer_type")) {
    problems.add(
        fmt::format("--sft needs --tokenizer-type SFTTokenizer (a tokenizer.json whose special "
                    "tokens the prompt format writes), not {}",
                    data.tokenizer_type));
  }
  if (data.mock_data && (data.sft || data.fim_data)) {
    problems.add(fmt::format("--mock-data makes up plain documents: drop it, or {}",
                             data.sft ? "--sft" : "--fim-data"));
  }
  if (data.sft && data.fim_data) {
    problems.add("--sft and --fim-data are two kinds of samples: give one of them");
  }
  if (data.sft && config.model.reset_position_ids) {
    problems.add("--sft counts positions anew in each conversation: drop --reset-position-ids");
  }
  if (data.sft && config.model.reset_attention_mask) {
    problems.add("--sft keeps conversations apart by itself: drop --reset-attention-mask");
  }
  if (data.sft && config.model.eod_mask_loss) {
    problems.add("--sft learns the assistant's turns alone: drop --eod-mask-loss");
  }
  check_document_borders(config, problems);
  if (data.fim_data && !data.fim_split_sample.empty() && !data.fim_fragment_rate) {
    problems.add("--fim-split-sample needs --fim-fragment-rate, the share of fragments to cut");
  }
}

void resolve_data(RunConfig& config, const Origins& origins, Problems& problems) {
  DataConfig& data = config.data;
  if (data.mock_data) {
    if (!origins.contains("split") && data.split == DataConfig{}.split) data.split = "1,1,1";
  } else if (has_parts_by_path(data)) {
    check_parts_by_path(config, problems);
  } else {
    check_one_source(data, problems);
  }
  check_validation_sets(config, problems);
  check_sample_kinds(config, problems);
}

void check_checkpoint(const CheckpointConfig& checkpoint, Problems& problems) {
  if (!checkpoint.save.empty() && checkpoint.save_interval == 0 &&
      !problems.about("save_interval")) {
    problems.add(fmt::format("--save {} needs --save-interval, the iterations between two saves",
                             quoted_for_message(checkpoint.save)));
  }
  if (checkpoint.save_retain_interval > 0 && checkpoint.save_interval > 0 &&
      checkpoint.save_retain_interval % checkpoint.save_interval != 0) {
    problems.add(fmt::format("--save-retain-interval {} does not divide by --save-interval {}",
                             checkpoint.save_retain_interval, checkpoint.save_interval));
  }
}

// Tensor- and pipeline-parallel ranks write together; nobody has yet said how others would.
void check_samples(const RunConfig& config, Problems& problems) {
  if (config.logging.sample_prompt.empty()) return;
  const ParallelConfig& p = config.parallel;
  if (p.context_parallel_size > 1 || p.expert_model_parallel_size > 1) {
    problems.add(
        fmt::format("--sample-prompt does not work with context {} x expert {} parallel: drop it, "
                    "and use `pentatron generate` on a checkpoint",
                    p.context_parallel_size, p.expert_model_parallel_size),
        "sample_prompt");
  }
}

void check_recorded_steps(const RunConfig& config, Problems& problems) {
  if (config.training.cuda_graph_impl != "full_iteration") return;
  const std::int64_t stages = config.parallel.pipeline_model_parallel_size;
  if (stages > 1) {
    problems.add(
        fmt::format("--cuda-graph-impl full_iteration does not record a pipeline: drop it, or "
                    "--pipeline-model-parallel-size {}",
                    stages));
  }
  if (config.optimizer.optimizer_cpu_offload) {
    problems.add(
        "--cuda-graph-impl full_iteration records work of the GPU alone: drop it, or "
        "--optimizer-cpu-offload");
  }
}

void check_recorded_layers(const RunConfig& config, Problems& problems) {
  if (config.training.cuda_graph_impl != "local") return;
  const auto refuse = [&](bool refused, const std::string& option, const char* why) {
    if (!refused) return;
    problems.add(fmt::format("--cuda-graph-impl local {}: drop it, or {}", why, option));
  };
  const auto& modules = config.training.cuda_graph_modules;
  const auto named = [&](const char* name) {
    return std::find(modules.begin(), modules.end(), name) != modules.end();
  };
  const bool whole = modules.empty() || (named("attn") && named("mlp") && modules.size() == 2);
  if (!whole) {
    problems.add(fmt::format(
        "--cuda-graph-modules {}: --cuda-graph-impl local records whole layers: leave it out, or "
        "name attn and mlp",
        quoted_for_message(fmt::format("{}", fmt::join(modules, " ")))));
  }
  const ModelConfig& model = config.model;
  const ParallelConfig& parallel = config.parallel;
  const std::string& strategy = parallel.data_parallel_sharding_strategy;
  refuse(parallel.pipeline_schedule.starts_with("zb-"),
         "--pipeline-schedule " + parallel.pipeline_schedule,
         "records a layer's backward whole, which this schedule splits");
  refuse(parallel.use_megatron_fsdp && strategy.starts_with("optim_grads"),
         "--data-parallel-sharding-strategy " + strategy,
         "replays work on weights and gradients that stay where they are");
  refuse(parallel.context_parallel_size > 1,
         fmt::format("--context-parallel-size {}", parallel.context_parallel_size),
         "records layers that have their samples whole");
  refuse(!model.fp8.empty(), "--fp8-format " + model.fp8,
         "does not record fp8 forms of weights, which are made once a step");
  refuse(recompute(model) == Recompute::kLayers, "--recompute-granularity full",
         "records what a layer keeps, and runs of layers that are made again keep nothing");
  refuse(model.fine_grained_activation_offloading, "--fine-grained-activation-offloading",
         "records layers whose activations stay on the device");
}

void resolve_trace(TrainingConfig& training, std::int64_t world_size, Problems& problems) {
  if (training.profile && training.trace.empty()) training.trace = "profile";
  if (training.trace.empty()) return;
  if (training.profile_step_start >= training.profile_step_end) {
    problems.add(fmt::format(
        "--profile-step-start {} is not below --profile-step-end {}: nothing would be traced",
        training.profile_step_start, training.profile_step_end));
  }
  for (const std::string& rank : training.profile_ranks) {
    if (std::stoll(rank) < world_size) continue;
    problems.add(
        fmt::format("--profile-ranks {}: there are {} ranks, counted from 0", rank, world_size));
  }
}

}  // namespace

void resolve_training(RunConfig& config, const Origins& origins, bool layout_fine,
                      Problems& problems) {
  TrainingConfig& training = config.training;
  training.exit_signal_handler |= training.exit_signal_handler_for_training;
  if (layout_fine && resolve_batch(config, problems)) {
    check_length(config, problems);
    check_interleaving(config, problems);
  }
  check_units(config, problems);
  resolve_schedule(config, problems);
  resolve_data(config, origins, problems);
  check_checkpoint(config.checkpoint, problems);
  check_samples(config, problems);
  resolve_trace(training, config.parallel.world_size, problems);
  check_recorded_steps(config, problems);
  check_recorded_layers(config, problems);
}

}  // namespace pentatron::config
