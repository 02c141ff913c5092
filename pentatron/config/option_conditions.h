// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "pentatron/config/choices.h"
#include "pentatron/config/option_table.h"

// When a value counts beside the other values: what OptionSpec::needs names. All read the values as
// the user gave them, before resolve().
namespace pentatron::config {

inline constexpr Condition kGroupedQueries{
    [](const RunConfig& c) { return c.model.group_query_attention; },
    "there is no --group-query-attention"};
inline constexpr Condition kLatent{
    [](const RunConfig& c) { return c.model.multi_latent_attention; },
    "there is no --multi-latent-attention"};
inline constexpr Condition kHeadsOfOneSize{
    [](const RunConfig& c) { return !c.model.multi_latent_attention; },
    "--multi-latent-attention has --qk-head-dim, --qk-pos-emb-head-dim and --v-head-dim"};
// Queries and keys as --position-embedding-type says.
inline constexpr Condition kRotatesHeads{
    [](const RunConfig& c) {
      const std::string& type = c.model.position_embedding_type;
      return !c.model.multi_latent_attention &&
             (type == "rope" || type == "yarn" || type == "longrope" || type == "mrope");
    },
    "it belongs to --position-embedding-type rope, yarn, longrope and mrope"};
inline constexpr Condition kRotates{
    [](const RunConfig& c) { return kRotatesHeads.holds(c) || c.model.multi_latent_attention; },
    "it belongs to --position-embedding-type rope, yarn, longrope and mrope and to "
    "--multi-latent-attention"};
inline constexpr Condition kRotatesShare{
    [](const RunConfig& c) {
      return kRotatesHeads.holds(c) ||
             (c.model.multi_latent_attention && c.model.rope_type == "rope");
    },
    "it belongs to --position-embedding-type rope, yarn, longrope and mrope and to --rope-type "
    "rope"};
inline constexpr Condition kLongRope{
    [](const RunConfig& c) { return c.model.position_embedding_type == "longrope"; },
    "it belongs to --position-embedding-type longrope"};
inline constexpr Condition kMrope{
    [](const RunConfig& c) { return c.model.position_embedding_type == "mrope"; },
    "it belongs to --position-embedding-type mrope"};
inline constexpr Condition kInterpolates{[](const RunConfig& c) {
                                           return kRotatesHeads.holds(c) &&
                                                  (c.model.position_embedding_type == "rope" ||
                                                   c.model.position_embedding_type == "mrope");
                                         },
                                         "it belongs to --position-embedding-type rope and mrope"};
inline constexpr Condition kYarn{
    [](const RunConfig& c) {
      return c.model.multi_latent_attention ? c.model.rope_type != "rope"
                                            : c.model.position_embedding_type == "yarn";
    },
    "it belongs to --position-embedding-type yarn, or with --multi-latent-attention to --rope-type "
    "yarn"};
// What scales attention counts whichever form the rotation has.
inline constexpr Condition kYarnScale{
    [](const RunConfig& c) { return kYarn.holds(c) || c.model.multi_latent_attention; },
    "it belongs to --position-embedding-type yarn and to --multi-latent-attention"};
inline constexpr Condition kRope{[](const RunConfig& c) {
                                   return kRotatesHeads.holds(c) &&
                                          c.model.position_embedding_type == "rope";
                                 },
                                 "it belongs to --position-embedding-type rope"};
inline constexpr Condition kAlibi{
    [](const RunConfig& c) { return c.model.position_embedding_type == "alibi"; },
    "it belongs to --position-embedding-type alibi"};
inline constexpr Condition kRelative{
    [](const RunConfig& c) { return c.model.position_embedding_type == "relative"; },
    "it belongs to --position-embedding-type relative"};
inline constexpr Condition kWindowRotates{
    [](const RunConfig& c) { return kRotatesHeads.holds(c) && !c.model.window_size.empty(); },
    "no layer has both a window and a rotation"};
inline constexpr Condition kSixteenBit{
    [](const RunConfig& c) { return is_narrow(precision(c.training)); },
    "activations have 32 bits already: it belongs to --bf16 and --fp16"};
inline constexpr Condition kBf16{
    [](const RunConfig& c) { return precision(c.training) == Precision::kBf16; },
    "it belongs to --bf16"};
inline constexpr Condition kRopeScaling{
    [](const RunConfig& c) { return kRope.holds(c) && c.model.use_rope_scaling; },
    "there is no --use-rope-scaling"};
inline constexpr Condition kGated{
    [](const RunConfig& c) { return c.model.swiglu || c.model.quick_geglu || c.model.geglu; },
    "it belongs to --swiglu, --geglu and --quick-geglu"};
inline constexpr Condition kQuickGeglu{[](const RunConfig& c) { return c.model.quick_geglu; },
                                       "it belongs to --quick-geglu"};
inline constexpr Condition kQkLayerNorm{[](const RunConfig& c) { return c.model.qk_layernorm; },
                                        "there is no --qk-layernorm"};
inline constexpr Condition kQkClip{[](const RunConfig& c) { return c.model.qk_clip; },
                                   "there is no --qk-clip"};
inline constexpr Condition kBiasedGelu{[](const RunConfig& c) {
                                         const ModelConfig& m = c.model;
                                         const bool biased = m.add_bias_linear || m.add_mlp_bias;
                                         return biased && !m.swiglu && !m.quick_geglu && !m.geglu &&
                                                !m.squared_relu && !m.openai_gelu;
                                       },
                                       "the feed-forward has no GELU with a bias"};
inline constexpr Condition kNoBiasYet{[](const RunConfig& c) { return !c.model.add_bias_linear; },
                                      "all linear layers have a bias already"};
inline constexpr Condition kWindow{[](const RunConfig& c) { return !c.model.window_size.empty(); },
                                   "there is no --window-size"};
inline constexpr Condition kMup{[](const RunConfig& c) { return c.model.use_mup; },
                                "there is no --use-mup"};
inline constexpr Condition kMupScalesScores{
    [](const RunConfig& c) { return c.model.use_mup && !c.model.softmax_scale; },
    "it belongs to --use-mup without --softmax-scale"};
inline constexpr Condition kVocabNotPadded{
    [](const RunConfig& c) { return c.model.padded_vocab_size == 0; },
    "--padded-vocab-size sets the size"};
inline constexpr Condition kRecomputesLayers{
    [](const RunConfig& c) { return recompute(c.model) == Recompute::kLayers; },
    "it belongs to --recompute-granularity full"};
inline constexpr Condition kRecomputesModules{
    [](const RunConfig& c) { return recompute(c.model) == Recompute::kModules; },
    "it belongs to --recompute-granularity selective"};
inline constexpr Condition kOffloadsActivations{
    [](const RunConfig& c) { return c.model.fine_grained_activation_offloading; },
    "there is no --fine-grained-activation-offloading"};

inline constexpr Condition kTensorParallel{
    [](const RunConfig& c) { return c.parallel.tensor_model_parallel_size > 1; },
    "it splits rows between tensor-parallel ranks, and there is one"};
inline constexpr Condition kDynamicContext{
    [](const RunConfig& c) { return c.parallel.dynamic_context_parallel; },
    "there is no --hybrid-context-parallel"};
inline constexpr Condition kContextParallel{
    [](const RunConfig& c) {
      return c.parallel.context_parallel_size > 1 || c.parallel.dynamic_context_parallel;
    },
    "each sample's tokens are on one rank: --context-parallel-size is 1"};
inline constexpr Condition kContextOfTwoLevels{
    [](const RunConfig& c) {
      const std::vector<std::string>& types = c.model.cp_comm_type;
      return std::find(types.begin(), types.end(), "a2a+p2p") != types.end();
    },
    "it belongs to --cp-comm-type a2a+p2p"};
inline constexpr Condition kPipelineParallel{
    [](const RunConfig& c) { return c.parallel.pipeline_model_parallel_size > 1; },
    "there is one pipeline rank"};
inline constexpr Condition kSeveralStagesARank{
    [](const RunConfig& c) {
      return c.parallel.num_virtual_stages_per_pipeline_rank > 1 ||
             c.parallel.num_layers_per_virtual_pipeline_stage > 0 ||
             !c.parallel.pipeline_model_parallel_layout.empty();
    },
    "each rank holds one stage"};
inline constexpr Condition kPlannedSchedule{
    [](const RunConfig& c) { return c.parallel.pipeline_schedule == "zb-auto"; },
    "it belongs to --pipeline-schedule zb-auto"};
inline constexpr Condition kProcesses{
    [](const RunConfig& c) { return c.parallel.distributed_backend != "threads"; },
    "with the backend threads one process runs all ranks"};
inline constexpr Condition kMegatronFsdp{
    [](const RunConfig& c) { return c.parallel.use_megatron_fsdp; },
    "it belongs to --use-megatron-fsdp"};
inline constexpr Condition kFsdpInBf16{
    [](const RunConfig& c) { return kMegatronFsdp.holds(c) && kBf16.holds(c); },
    "it belongs to --use-megatron-fsdp with --bf16"};
inline constexpr Condition kShards{[](const RunConfig& c) { return shards_over_data(c.parallel); },
                                   "nothing is sharded over the data-parallel ranks"};
inline constexpr Condition kStrategyShards{
    [](const RunConfig& c) { return !c.parallel.use_megatron_fsdp || kShards.holds(c); },
    "--use-megatron-fsdp with --data-parallel-sharding-strategy no_shard shards nothing"};

inline constexpr Condition kReadsFiles{[](const RunConfig& c) { return !c.data.mock_data; },
                                       "--mock-data reads no files"};
inline constexpr Condition kNoSft{[](const RunConfig& c) { return !c.data.sft; },
                                  "--sft pads by its format"};
inline constexpr Condition kSft{[](const RunConfig& c) { return c.data.sft; }, "there is no --sft"};
inline constexpr Condition kFim{[](const RunConfig& c) { return c.data.fim_data; },
                                "there is no --fim-data"};
inline constexpr Condition kFimSplit{
    [](const RunConfig& c) { return c.data.fim_data && !c.data.fim_split_sample.empty(); },
    "there is no --fim-split-sample"};
inline constexpr Condition kOneCorpus{
    [](const RunConfig& c) {
      return c.data.mock_data ||
             (c.data.train_data_path.empty() && c.data.valid_data_path.empty() &&
              c.data.test_data_path.empty() && c.data.per_split_data_args_path.empty());
    },
    "--train-data-path, --valid-data-path and --test-data-path name whole corpora"};
// Without --tokenizer-type that is the default.
inline constexpr Condition kGpt2Bpe{[](const RunConfig& c) {
                                      const TokenizerKind kind = tokenizer_kind(c.data);
                                      return kind == TokenizerKind::kNone ||
                                             kind == TokenizerKind::kGpt2Bpe;
                                    },
                                    "it belongs to --tokenizer-type GPT2BPETokenizer"};
inline constexpr Condition kSentencePiece{
    [](const RunConfig& c) { return reads_sentence_piece(tokenizer_kind(c.data)); },
    "it belongs to --tokenizer-type SentencePieceTokenizer, GPTSentencePieceTokenizer and "
    "Llama2Tokenizer"};
inline constexpr Condition kTokenizerModel{
    [](const RunConfig& c) { return !c.data.tokenizer_model.empty(); },
    "there is no --tokenizer-model"};
inline constexpr Condition kNullTokenizer{
    [](const RunConfig& c) { return tokenizer_kind(c.data) == TokenizerKind::kNull; },
    "it belongs to --tokenizer-type NullTokenizer"};

// Muon's and SOAP's embeddings, output layer and vectors are Adam's.
inline constexpr Condition kAdam{[](const RunConfig& c) {
                                   return c.optimizer.optimizer != "sgd" &&
                                          c.optimizer.optimizer != "lion";
                                 },
                                 "it belongs to --optimizer adam"};
inline constexpr Condition kSoap{[](const RunConfig& c) { return c.optimizer.optimizer == "soap"; },
                                 "it belongs to --optimizer soap"};
inline constexpr Condition kPrecisionAware{
    [](const RunConfig& c) { return c.optimizer.use_precision_aware_optimizer; },
    "there is no --use-precision-aware-optimizer"};
inline constexpr Condition kOffloadsOptimizer{
    [](const RunConfig& c) { return c.optimizer.optimizer_cpu_offload; },
    "there is no --optimizer-cpu-offload"};
inline constexpr Condition kSgd{[](const RunConfig& c) { return c.optimizer.optimizer == "sgd"; },
                                "it belongs to --optimizer sgd"};
inline constexpr Condition kMuon{[](const RunConfig& c) { return c.optimizer.optimizer == "muon"; },
                                 "it belongs to --optimizer muon"};
inline constexpr Condition kDecays{
    [](const RunConfig& c) { return c.optimizer.lr_decay_style != "constant"; },
    "--lr-decay-style constant does not decay"};
// A warm-up given as a fraction is a fraction of the decay.
inline constexpr Condition kDecayLength{[](const RunConfig& c) {
                                          return c.optimizer.lr_decay_style != "constant" ||
                                                 c.optimizer.lr_warmup_fraction.has_value();
                                        },
                                        "--lr-decay-style constant does not decay"};
inline constexpr Condition kWsd{
    [](const RunConfig& c) { return c.optimizer.lr_decay_style == "WSD"; },
    "it belongs to --lr-decay-style WSD"};
inline constexpr Condition kWarmsUp{[](const RunConfig& c) {
                                      return c.optimizer.lr_warmup_fraction.value_or(0) > 0 ||
                                             c.optimizer.lr_warmup_iters > 0 ||
                                             c.optimizer.lr_warmup_samples > 0;
                                    },
                                    "there is no warm-up"};
inline constexpr Condition kConstantWeightDecay{
    [](const RunConfig& c) { return c.optimizer.weight_decay_incr_style == "constant"; },
    "--start-weight-decay and --end-weight-decay say it"};
inline constexpr Condition kDynamicLossScale{
    [](const RunConfig& c) {
      return precision(c.training) == Precision::kFp16 && !c.optimizer.loss_scale.has_value();
    },
    "it belongs to dynamic loss scaling: --fp16 without --loss-scale"};

inline constexpr Condition kQkLayerNormTrains{
    [](const RunConfig& c) { return c.model.qk_layernorm && !c.training.skip_train; },
    "it belongs to training with --qk-layernorm"};
// Evaluations of conversations are averaged as training is.
inline constexpr Condition kAverages{
    [](const RunConfig& c) { return !c.training.skip_train || c.data.sft; },
    "--skip-train trains nothing, and there is no --sft"};
inline constexpr Condition kTrains{[](const RunConfig& c) { return !c.training.skip_train; },
                                   "--skip-train trains nothing"};
inline constexpr Condition kValidatesResults{
    [](const RunConfig& c) { return c.training.rerun_mode == "validate_results"; },
    "it belongs to --rerun-mode validate_results"};
inline constexpr Condition kInjectsErrors{[](const RunConfig& c) {
                                            return kValidatesResults.holds(c) &&
                                                   c.training.error_injection_rate > 0;
                                          },
                                          "there is no --error-injection-rate"};
inline constexpr Condition kTraces{
    [](const RunConfig& c) { return c.training.profile || !c.training.trace.empty(); },
    "there is no --trace and no --profile"};
inline constexpr Condition kEvaluates{[](const RunConfig& c) { return c.training.eval_iters > 0; },
                                      "--eval-iters 0 evaluates nothing"};
inline constexpr Condition kEvaluatesWhileTraining{
    [](const RunConfig& c) { return c.training.eval_interval > 0; },
    "nothing is evaluated during training"};
inline constexpr Condition kExitSignalHandler{
    [](const RunConfig& c) { return c.training.exit_signal_handler; },
    "there is no --exit-signal-handler"};

inline constexpr Condition kTensorboard{
    [](const RunConfig& c) { return !c.logging.tensorboard_dir.empty(); },
    "there is no --tensorboard-dir"};
inline constexpr Condition kTimersOfLevelOne{
    [](const RunConfig& c) { return c.logging.timing_log_level > 0; },
    "--timing-log-level 0 has no such timers"};
inline constexpr Condition kWritesSamples{
    [](const RunConfig& c) { return c.training.eval_iters > 0; },
    "the model writes when it is evaluated, and --eval-iters 0 never evaluates"};
inline constexpr Condition kSamplePrompt{
    [](const RunConfig& c) { return !c.logging.sample_prompt.empty(); },
    "there is no --sample-prompt"};

inline constexpr Condition kSaves{[](const RunConfig& c) { return !c.checkpoint.save.empty(); },
                                  "there is no --save"};
inline constexpr Condition kLoads{[](const RunConfig& c) {
                                    const CheckpointConfig& checkpoint = c.checkpoint;
                                    return !checkpoint.load.empty() ||
                                           !checkpoint.pretrained_checkpoint.empty();
                                  },
                                  "there is no --load"};
inline constexpr Condition kDistils{
    [](const RunConfig& c) { return !c.checkpoint.export_kd_teacher_load.empty(); },
    "there is no --export-kd-teacher-load"};
inline constexpr Condition kUsesCheckpointArgs{
    [](const RunConfig& c) { return c.checkpoint.use_checkpoint_args; },
    "there is no --use-checkpoint-args"};

}  // namespace pentatron::config
