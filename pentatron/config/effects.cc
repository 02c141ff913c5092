// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/effects.h"

namespace pentatron::config {
namespace {

struct EffectRule {
  std::string_view option;
  std::string_view dest;
  bool (*has_effect)(const RunConfig&);
  std::string_view reason;  // why the value has no effect
};

bool rope(const RunConfig& c) { return c.model.position_embedding_type == "rope"; }
bool adam(const RunConfig& c) { return c.optimizer.optimizer != "sgd"; }  // Muon's vectors too
bool muon(const RunConfig& c) { return c.optimizer.optimizer == "muon"; }
bool shards(const RunConfig& c) {
  const ParallelConfig& p = c.parallel;
  return p.use_distributed_optimizer ||
         (p.use_megatron_fsdp && p.data_parallel_sharding_strategy != "no_shard");
}
bool decays(const RunConfig& c) { return c.optimizer.lr_decay_style != "constant"; }
bool wsd(const RunConfig& c) { return c.optimizer.lr_decay_style == "WSD"; }
bool scales_dynamically(const RunConfig& c) {
  return c.training.precision == "fp16" && !c.optimizer.loss_scale;
}
bool evaluates_while_training(const RunConfig& c) { return c.training.eval_interval > 0; }
bool evaluates(const RunConfig& c) { return c.training.eval_iters > 0; }
bool one_corpus(const RunConfig& c) {
  return c.data.train_data_path.empty() && c.data.valid_data_path.empty() &&
         c.data.test_data_path.empty();
}
bool loads(const RunConfig& c) { return !c.checkpoint.load.empty(); }
bool saves(const RunConfig& c) { return !c.checkpoint.save.empty(); }
bool tensorboard(const RunConfig& c) { return !c.logging.tensorboard_dir.empty(); }
// Without --tokenizer-type that is the default.
bool gpt2_bpe(const RunConfig& c) {
  return c.data.tokenizer_type.empty() || c.data.tokenizer_type == "GPT2BPETokenizer";
}
bool null_tokenizer(const RunConfig& c) { return c.data.tokenizer_type == "NullTokenizer"; }
bool real_data(const RunConfig& c) { return !c.data.mock_data; }
bool recomputes_layers(const RunConfig& c) { return c.model.recompute_granularity == "full"; }
bool warms_up(const RunConfig& c) {
  return c.optimizer.lr_warmup_fraction.value_or(0) > 0 || c.optimizer.lr_warmup_iters > 0 ||
         c.optimizer.lr_warmup_samples > 0;
}
// A warm-up given as a fraction is a fraction of the decay.
bool decay_length_counts(const RunConfig& c) {
  return decays(c) || c.optimizer.lr_warmup_fraction.has_value();
}

constexpr std::string_view kLayers = "it belongs to --recompute-granularity full";
constexpr std::string_view kLoads = "there is no --load";
constexpr std::string_view kSaves = "there is no --save";
constexpr std::string_view kTensorboard = "there is no --tensorboard-dir";
constexpr std::string_view kAdam = "it belongs to --optimizer adam";
constexpr std::string_view kMuon = "it belongs to --optimizer muon";
constexpr std::string_view kRope = "it belongs to --position-embedding-type rope";
constexpr std::string_view kDecay = "--lr-decay-style constant does not decay";
constexpr std::string_view kBpe = "it belongs to --tokenizer-type GPT2BPETokenizer";
constexpr std::string_view kNull = "it belongs to --tokenizer-type NullTokenizer";
constexpr std::string_view kWsd = "it belongs to --lr-decay-style WSD";
constexpr std::string_view kDynamic =
    "it belongs to dynamic loss scaling: --fp16 without --loss-scale";
constexpr std::string_view kEvaluates = "--eval-iters 0 evaluates nothing";
constexpr std::string_view kMock = "--mock-data reads no files";

constexpr EffectRule kRules[] = {
    {"--num-query-groups", "num_query_groups",
     [](const RunConfig& c) { return c.model.group_query_attention; },
     "there is no --group-query-attention"},
    {"--rotary-base", "rotary_base", rope, kRope},
    {"--rotary-percent", "rotary_percent", rope, kRope},
    {"--add-qkv-bias", "add_qkv_bias",
     [](const RunConfig& c) { return !c.model.add_qkv_bias || !c.model.add_bias_linear; },
     "all linear layers have a bias already"},
    {"--make-vocab-size-divisible-by", "make_vocab_size_divisible_by",
     [](const RunConfig& c) { return c.model.padded_vocab_size == 0; },
     "--padded-vocab-size sets the size"},
    {"--sequence-parallel", "sequence_parallel",
     [](const RunConfig& c) {
       return !c.parallel.sequence_parallel || c.parallel.tensor_model_parallel_size > 1;
     },
     "it splits rows between tensor-parallel ranks, and there is one"},
    {"--rank", "rank",
     [](const RunConfig& c) { return c.parallel.distributed_backend != "threads"; },
     "with the backend threads one process runs all ranks"},
    {"--split", "split", [](const RunConfig& c) { return one_corpus(c) || c.data.mock_data; },
     "--train-data-path, --valid-data-path and --test-data-path name whole corpora"},
    {"--data-cache-path", "data_cache_path", real_data, kMock},
    {"--no-mmap-bin-files", "mmap_bin_files",
     [](const RunConfig& c) { return c.data.mmap_bin_files || !c.data.mock_data; }, kMock},
    {"--data-content-hash", "data_content_hash", real_data, kMock},
    {"--vocab-file", "vocab_file", gpt2_bpe, kBpe},
    {"--merge-file", "merge_file", gpt2_bpe, kBpe},
    {"--null-tokenizer-eod-id", "null_tokenizer_eod_id", null_tokenizer, kNull},
    {"--null-tokenizer-pad-id", "null_tokenizer_pad_id", null_tokenizer, kNull},
    {"--min-lr", "min_lr", decays, kDecay},
    {"--lr-decay-iters", "lr_decay_iters", decay_length_counts, kDecay},
    {"--lr-decay-samples", "lr_decay_samples", decay_length_counts, kDecay},
    {"--lr-warmup-init", "lr_warmup_init", warms_up, "there is no warm-up"},
    {"--lr-wsd-decay-style", "lr_wsd_decay_style", wsd, kWsd},
    {"--lr-wsd-decay-iters", "lr_wsd_decay_iters", wsd, kWsd},
    {"--lr-wsd-decay-samples", "lr_wsd_decay_samples", wsd, kWsd},
    {"--decoupled-min-lr", "decoupled_min_lr", decays, kDecay},
    {"--weight-decay", "weight_decay",
     [](const RunConfig& c) { return c.optimizer.weight_decay_incr_style == "constant"; },
     "--start-weight-decay and --end-weight-decay say it"},
    {"--initial-loss-scale", "initial_loss_scale", scales_dynamically, kDynamic},
    {"--min-loss-scale", "min_loss_scale", scales_dynamically, kDynamic},
    {"--loss-scale-window", "loss_scale_window", scales_dynamically, kDynamic},
    {"--hysteresis", "hysteresis", scales_dynamically, kDynamic},
    {"--recompute-method", "recompute_method", recomputes_layers, kLayers},
    {"--recompute-num-layers", "recompute_num_layers", recomputes_layers, kLayers},
    {"--recompute-modules", "recompute_modules",
     [](const RunConfig& c) { return c.model.recompute_granularity == "selective"; },
     "it belongs to --recompute-granularity selective"},
    {"--microbatch-group-size-per-virtual-pipeline-stage", "microbatch_group_size_per_vp_stage",
     [](const RunConfig& c) {
       return c.parallel.num_virtual_stages_per_pipeline_rank > 1 ||
              c.parallel.num_layers_per_virtual_pipeline_stage > 0 ||
              !c.parallel.pipeline_model_parallel_layout.empty();
     },
     "each rank holds one stage"},
    {"--pipeline-schedule", "pipeline_schedule",
     [](const RunConfig& c) { return c.parallel.pipeline_model_parallel_size > 1; },
     "there is one pipeline rank"},
    {"--start-eval-at-iter", "start_eval_at_iter", evaluates_while_training,
     "nothing is evaluated during training"},
    {"--eval-global-batch-size", "eval_global_batch_size", evaluates, kEvaluates},
    {"--eval-micro-batch-size", "eval_micro_batch_size", evaluates, kEvaluates},
    {"--full-validation", "full_validation",
     [](const RunConfig& c) { return !c.training.full_validation || evaluates(c); }, kEvaluates},
    {"--iterations-to-skip", "iterations_to_skip",
     [](const RunConfig& c) { return !c.training.skip_train; }, "--skip-train trains nothing"},
    {"--adam-beta1", "adam_beta1", adam, kAdam},
    {"--adam-beta2", "adam_beta2", adam, kAdam},
    {"--adam-eps", "adam_eps", adam, kAdam},
    {"--sgd-momentum", "sgd_momentum", [](const RunConfig& c) { return !adam(c); },
     "it belongs to --optimizer sgd"},
    {"--muon-momentum", "muon_momentum", muon, kMuon},
    {"--muon-num-ns-steps", "muon_num_ns_steps", muon, kMuon},
    {"--muon-coefficient-type", "muon_coefficient_type", muon, kMuon},
    {"--muon-scale-mode", "muon_scale_mode", muon, kMuon},
    {"--muon-extra-scale-factor", "muon_extra_scale_factor", muon, kMuon},
    {"--muon-nesterov", "muon_nesterov",
     [](const RunConfig& c) { return muon(c) || !c.optimizer.muon_nesterov; }, kMuon},
    {"--muon-no-split-qkv", "muon_split_qkv",
     [](const RunConfig& c) { return muon(c) || c.optimizer.muon_split_qkv; }, kMuon},
    {"--data-parallel-sharding-strategy", "data_parallel_sharding_strategy",
     [](const RunConfig& c) { return c.parallel.use_megatron_fsdp; },
     "it belongs to --use-megatron-fsdp"},
    {"--num-distributed-optimizer-instances", "num_distributed_optimizer_instances",
     [](const RunConfig& c) {
       return c.parallel.num_distributed_optimizer_instances == 1 || shards(c);
     },
     "nothing is sharded"},
    {"--overlap-param-gather", "overlap_param_gather",
     [](const RunConfig& c) { return !c.parallel.overlap_param_gather || shards(c); },
     "nothing is sharded that would be gathered"},
    {"--exit-signal", "exit_signal",
     [](const RunConfig& c) { return c.training.exit_signal_handler; },
     "there is no --exit-signal-handler"},
    {"--tensorboard-log-interval", "tensorboard_log_interval", tensorboard, kTensorboard},
    {"--tensorboard-queue-size", "tensorboard_queue_size", tensorboard, kTensorboard},
    {"--log-timers-to-tensorboard", "log_timers_to_tensorboard",
     [](const RunConfig& c) { return !c.logging.log_timers_to_tensorboard || tensorboard(c); },
     kTensorboard},
    {"--no-log-loss-scale-to-tensorboard", "log_loss_scale_to_tensorboard",
     [](const RunConfig& c) { return c.logging.log_loss_scale_to_tensorboard || tensorboard(c); },
     kTensorboard},
    {"--log-validation-ppl-to-tensorboard", "log_validation_ppl_to_tensorboard",
     [](const RunConfig& c) {
       return !c.logging.log_validation_ppl_to_tensorboard || tensorboard(c);
     },
     kTensorboard},
    {"--log-memory-to-tensorboard", "log_memory_to_tensorboard",
     [](const RunConfig& c) { return !c.logging.log_memory_to_tensorboard || tensorboard(c); },
     kTensorboard},
    {"--log-world-size-to-tensorboard", "log_world_size_to_tensorboard",
     [](const RunConfig& c) { return !c.logging.log_world_size_to_tensorboard || tensorboard(c); },
     kTensorboard},
    {"--no-barrier-with-level-1-timing", "barrier_with_L1_time",
     [](const RunConfig& c) {
       return c.logging.barrier_with_l1_time || c.logging.timing_log_level > 0;
     },
     "--timing-log-level 0 has no such timers"},
    {"--log-progress", "log_progress",
     [](const RunConfig& c) { return !c.logging.log_progress || saves(c); }, kSaves},
    {"--sample-prompt", "sample_prompt",
     [](const RunConfig& c) { return c.training.eval_iters > 0; },
     "the model writes when it is evaluated, and --eval-iters 0 never evaluates"},
    {"--sample-length", "sample_length",
     [](const RunConfig& c) { return !c.logging.sample_prompt.empty(); },
     "there is no --sample-prompt"},
    {"--save-interval", "save_interval", saves, kSaves},
    {"--save-retain-interval", "save_retain_interval", saves, kSaves},
    {"--keep-checkpoints", "keep_checkpoints", saves, kSaves},
    {"--no-save-optim", "no_save_optim",
     [](const RunConfig& c) { return !c.checkpoint.no_save_optim || saves(c); }, kSaves},
    {"--ckpt-step", "ckpt_step", loads, kLoads},
    {"--finetune", "finetune",
     [](const RunConfig& c) { return !c.checkpoint.finetune || loads(c); }, kLoads},
    {"--no-load-optim", "no_load_optim",
     [](const RunConfig& c) { return !c.checkpoint.no_load_optim || loads(c); }, kLoads},
    {"--exit-on-missing-checkpoint", "exit_on_missing_checkpoint",
     [](const RunConfig& c) { return !c.checkpoint.exit_on_missing_checkpoint || loads(c); },
     kLoads},
    {"--override-opt-param-scheduler", "override_opt_param_scheduler",
     [](const RunConfig& c) { return !c.optimizer.override_opt_param_scheduler || loads(c); },
     kLoads},
    {"--use-checkpoint-opt-param-scheduler", "use_checkpoint_opt_param_scheduler",
     [](const RunConfig& c) { return !c.optimizer.use_checkpoint_opt_param_scheduler || loads(c); },
     kLoads},
};

}  // namespace

std::vector<OptionNote> values_without_effect(const RunConfig& config, const Origins& origins) {
  std::vector<OptionNote> notes;
  for (const EffectRule& rule : kRules) {
    if (!set_by_user(origins, rule.dest) || rule.has_effect(config)) continue;
    notes.push_back({std::string(rule.option), std::string(rule.reason)});
  }
  return notes;
}

void check_data_sources(const RunConfig& config, const Origins& origins, Problems& problems) {
  if (!config.data.mock_data) return;
  constexpr std::pair<std::string_view, std::string_view> kSources[] = {
      {"--data-path", "data_path"},
      {"--train-data-path", "train_data_path"},
      {"--valid-data-path", "valid_data_path"},
      {"--test-data-path", "test_data_path"}};
  for (const auto& [option, dest] : kSources) {
    if (!set_by_user(origins, dest)) continue;
    problems.add(
        fmt::format("{} and --mock-data exclude each other: mock data reads no files; give one",
                    option),
        dest);
  }
}

}  // namespace pentatron::config
