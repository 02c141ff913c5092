// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

// Plain structs that every module reads. Names are Megatron's destination names; the option tables
// (one file per module) fill them. "Resolved" fields have been given their derived value by
// resolve() in validate.h: nothing downstream derives them again. Batch sizes and *_samples are
// counts of samples, *_iters and *_interval counts of iterations, *_length and *_positions of
// tokens.
namespace pentatron::config {

struct ModelConfig {
  std::string model_preset;  // models/family.h; its options stand below those of the command line
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t ffn_hidden_size = 0;  // resolved: 4h, with swiglu floor(8h/3/64)*64
  std::int64_t num_attention_heads = 0;
  // Resolved: hidden_size / num_attention_heads; of latent attention a query's and key's channels
  std::int64_t kv_channels = 0;
  bool group_query_attention = false;
  std::int64_t num_query_groups = 0;  // resolved: heads unless group_query_attention
  // Multi-latent attention (latent_attention.h)
  bool multi_latent_attention = false;
  std::int64_t q_lora_rank = 0;  // 0: queries have no latent
  std::int64_t kv_lora_rank = 32;
  std::int64_t qk_head_dim = 128;         // channels of a query and key that are not rotated
  std::int64_t qk_pos_emb_head_dim = 64;  // those that are
  std::int64_t v_head_dim = 128;
  std::string rope_type;  // rope, yarn; empty: yarn
  std::int64_t max_position_embeddings = 0;
  std::int64_t seq_length = 0;
  std::int64_t vocab_size = 0;         // true vocabulary, from the tokenizer unless set
  std::int64_t padded_vocab_size = 0;  // resolved: multiple of make_vocab_size_divisible_by * TP
  std::int64_t make_vocab_size_divisible_by = 128;
  bool untie_embeddings_and_output_weights = false;
  std::string normalization = "LayerNorm";                   // or RMSNorm
  double layernorm_epsilon = 1e-5;                           // --norm-epsilon
  bool apply_layernorm_1p = false;                           // weights are used as 1 + weight
  std::string position_embedding_type = "learned_absolute";  // or rope, yarn, alibi, none
  double rotary_base = 10000.0;
  double rotary_percent = 1.0;  // share of a head's channels, up to 1
  bool rotary_interleaved = false;
  std::int64_t rotary_seq_len_interpolation_factor = 0;  // positions are divided by it; 0: 1
  bool use_rope_scaling = false;                         // Llama 3.1's
  double rope_scaling_factor = 8.0;
  std::string no_rope_freq;        // layers without rotation (layer_pattern.h); empty: none
  double rotary_base_local = 0.0;  // of layers with a window; 0: rotary_base
  // position_embedding_type yarn, or rope_type
  double rotary_scaling_factor = 1.0;
  std::int64_t yarn_original_max_position_embeddings = 0;  // 0: 4096
  double yarn_beta_fast = 32.0;
  double yarn_beta_slow = 1.0;
  double mscale = 1.0;
  double mscale_all_dim = 0.0;
  bool yarn_correction_range_round_to_int = true;
  // position_embedding_type longrope: a factor a frequency, up to and above the original length
  std::vector<std::string> longrope_short_factor;
  std::vector<std::string> longrope_long_factor;
  std::int64_t longrope_original_max_position_embeddings = 0;
  std::vector<std::string> mrope_section;  // position_embedding_type mrope: frequencies of t, h, w
  // position_embedding_type alibi
  double alibi_scale = 1.0;    // of the biases
  bool alibi_in_bf16 = false;  // their slopes, places and products are rounded
  // position_embedding_type relative
  std::int64_t relative_attention_num_buckets = 32;
  std::int64_t relative_attention_max_distance = 128;  // tokens
  // One of these, or GELU: the tanh form with bias_gelu_fusion and biases, else the erf form
  bool openai_gelu = false;  // the tanh form in any case
  bool geglu = false;        // gated by the tanh form of GELU
  bool swiglu = false;
  bool squared_relu = false;
  bool quick_geglu = false;
  bool bias_gelu_fusion = true;
  double glu_linear_offset = 0.0;
  std::optional<double> activation_func_clamp_value;  // of quick_geglu
  bool add_bias_linear = true;                        // --disable-bias-linear turns it off
  bool add_qkv_bias = false;
  bool add_attention_output_bias = false;
  bool add_mlp_bias = false;
  bool qk_layernorm = false;           // `normalization` of each query and key head
  bool qk_l2_norm = false;             // each divided by its root mean square
  std::string qk_norm_scope = "head";  // of qk_layernorm; all-heads: one norm over all of them
  // Keys that a query sees: at most L before it and R after it, "L,R", -1 without limit; empty: all
  std::string window_size;
  std::string window_attn_skip_freq;     // layers that see all keys (layer_pattern.h); empty: none
  std::string softmax_type = "vanilla";  // off-by-one, learnable
  std::optional<double> softmax_scale;   // none: 1 / sqrt(kv_channels)
  std::optional<double> attn_logit_softcapping;   // scores become cap tanh(score / cap)
  std::optional<double> final_logit_softcapping;  // so do the logits of the vocabulary
  bool attention_output_gate = false;
  // Layers unlike each other, as a JSON file or text (heterogeneous layers)
  std::string heterogeneous_layers_config_path;
  std::string heterogeneous_layers_config_encoded_json;
  std::string norm_placement = "pre";       // of attention and mlp; post: their outputs; both
  std::string parallel_attention = "none";  // mlp beside attention: shared-norm, own-norms
  bool fp32_residual_connection = false;
  bool apply_residual_connection_post_layernorm = false;
  std::optional<double> embedding_multiplier;  // of the word embeddings' output
  // Maximal update parametrisation (mup.h)
  bool use_mup = false;
  double mup_width_mult = 1.0;            // resolved: hidden_size / mup_base_hidden_size
  std::int64_t mup_base_hidden_size = 0;  // resolved: hidden_size
  double mup_embedding_mult = 1.0;
  double mup_output_mult = 1.0;  // resolved: 1 / mup_width_mult where it is 1
  std::optional<double> mup_base_head_dim;
  double mup_attn_scale_power = 1.0;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double init_method_std = 0.02;                    // output projections: / sqrt(2 * num_layers)
  std::optional<double> embedding_init_method_std;  // none: init_method_std
  bool init_method_xavier_uniform = false;
  // Low-rank adapters (LoRA, DoRA); rank 0: none
  std::int64_t lora_rank = 0;
  double lora_alpha = 0.0;  // resolved: 2 * lora_rank
  double lora_dropout = 0.0;
  std::vector<std::string> lora_target_modules;  // resolved: all linear layers
  bool lora_rslora = false;                      // scaled by alpha / sqrt(rank)
  bool lora_dora = false;
  // fp8 products (ops/recipe.h); empty: none
  std::string fp8;  // --fp8-format hybrid, e4m3
  std::string fp8_recipe = "delayed";
  std::int64_t fp8_margin = 0;
  std::int64_t fp8_amax_history_len = 1;
  std::string fp8_amax_compute_algo = "most_recent";
  bool fp8_wgrad = true;
  bool fp8_output_proj = false;
  bool first_last_layers_bf16 = false;
  std::int64_t num_layers_at_start_in_bf16 = 1;
  std::int64_t num_layers_at_end_in_bf16 = 1;
  std::string logit_dtype;  // --output-logit-dtype bf16, fp32; empty: of the precision
  std::uint64_t seed = 1234;
  // Data-shaped masks (features.md 9.4)
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
  // Activations that backward makes again instead of keeping them
  std::string recompute_granularity;      // full: whole layers; selective: modules; empty: none
  std::string recompute_method;           // full: uniform, block
  std::int64_t recompute_num_layers = 0;  // uniform: layers a run; block: layers a stage
  std::vector<std::string> recompute_modules;  // selective; resolved: core_attn
  // How context-parallel ranks share keys and values (context_comm.h): of every layer, or one a
  // layer
  std::vector<std::string> cp_comm_type = {"p2p"};
  // Query and key weights of heads whose largest logit passed the threshold shrink after a step
  bool qk_clip = false;
  double qk_clip_alpha = 0.5;  // share of the factor that queries take; keys take the rest
  double qk_clip_threshold = 100.0;
  bool pad_vocab_in_softmax = false;          // rows of the padded vocabulary count, as in Megatron
  bool distribute_saved_activations = false;  // full recompute keeps a slice on each tp rank
  // Activations that wait for backward in pinned host memory
  bool fine_grained_activation_offloading = false;
  std::vector<std::string> offload_modules;              // attn_norm, qkv_linear, core_attn, ...
  std::int64_t min_offloaded_tensor_size = 1024 * 1024;  // elements; smaller ones stay
  double activation_offload_fraction = 1.0;              // of the modules of a stage
  double label_smoothing = 0.0;                          // share of the target given to all words
};

struct ParallelConfig {
  std::int64_t world_size = 1;  // --world-size (threads, fake) or the launcher's WORLD_SIZE
  std::int64_t rank = 0;
  std::int64_t local_rank = 0;
  std::string master_addr = "127.0.0.1";
  std::int64_t master_port = 29500;
  std::int64_t tensor_model_parallel_size = 1;
  std::int64_t pipeline_model_parallel_size = 1;
  std::int64_t context_parallel_size = 1;
  // With a2a+p2p: ranks that exchange heads, and rings of such groups; numbers
  std::vector<std::string> hierarchical_context_parallel_sizes;
  // Samples of unlike lengths share groups of dp x cp ranks of unlike sizes
  bool dynamic_context_parallel = false;
  std::int64_t max_seqlen_per_dp_cp_rank = 0;          // tokens; needed by the above
  std::int64_t min_dynamic_context_parallel_size = 1;  // ranks
  bool use_tp_pp_dp_mapping = false;                   // ranks of a pipeline before those of data
  std::int64_t expert_model_parallel_size = 1;
  std::int64_t data_parallel_size = 1;  // resolved: world / (tp * cp * pp)
  // Which stage holds what (pipeline_layout.h); 0 and empty: equal stages, one a rank
  std::int64_t decoder_first_pipeline_num_layers = 0;
  std::int64_t decoder_last_pipeline_num_layers = 0;
  bool account_for_embedding_in_pipeline_split = false;
  bool account_for_loss_in_pipeline_split = false;
  std::string pipeline_model_parallel_layout;
  std::int64_t num_layers_per_virtual_pipeline_stage = 0;
  std::int64_t num_virtual_stages_per_pipeline_rank = 0;
  std::int64_t microbatch_group_size_per_vp_stage = 0;  // 0: pipeline_model_parallel_size
  std::string pipeline_schedule = "1f1b";               // gpipe, zb-h1, zb-auto
  std::int64_t pipeline_schedule_max_in_flight = 0;     // 0: pipeline_model_parallel_size
  std::vector<std::string> pipeline_schedule_costs;     // pipeline_layout.h schedule_costs
  bool sequence_parallel = false;
  bool use_distributed_optimizer = false;
  bool use_megatron_fsdp = false;
  // With use_megatron_fsdp: no_shard, optim, optim_grads, optim_grads_params
  std::string data_parallel_sharding_strategy = "optim_grads_params";
  bool overlap_param_gather = false;
  bool grad_reduce_in_bf16 = false;
  std::int64_t ddp_bucket_size = 0;  // elements of a bucket of gradients; 0: by default, or
  std::int64_t ddp_num_buckets = 0;  // as many buckets as this
  std::string megatron_fsdp_main_params_dtype = "fp32";
  std::string megatron_fsdp_main_grads_dtype = "auto";
  std::string megatron_fsdp_grad_comm_dtype = "auto";
  std::int64_t num_distributed_optimizer_instances = 1;
  std::string distributed_backend = "auto";  // nccl, gloo, threads, fake
  std::int64_t distributed_timeout_minutes = 10;
  bool check_collectives = false;         // nccl: ranks compare what they call before they call it
  std::int64_t cpu_threads_per_rank = 0;  // 0: all cores / local ranks
};

struct DataConfig {
  std::vector<std::string> data_path;    // of one corpus, or a blend (datasets/blend.h)
  std::string data_args_path;            // file that holds data_path's words
  std::string per_split_data_args_path;  // JSON file of those of the next three
  double mid_level_dataset_surplus =
      0.005;  // built of each member of a weighted blend, beyond its share
  // Whole corpora for the three parts, instead of data_path and split
  std::vector<std::string> train_data_path;
  std::vector<std::string> valid_data_path;
  std::vector<std::string> test_data_path;
  std::vector<std::string> validation_set_names;  // of valid_data_path, in order
  std::string split = "969, 30, 1";
  std::string data_cache_path;   // empty: <prefix>/cache/GPTDataset_indices
  std::int64_t num_workers = 2;  // reading threads of a rank; 0: none
  std::string dataloader_type = "single";
  bool mmap_bin_files = true;
  std::string data_content_hash = "sampled";       // or whole: what of a .bin tells it from another
  bool append_epochs = false;                      // a longer run keeps the order it began with
  bool dataloader_inter_document_masking = false;  // documents of a sample do not see each other
  std::string tokenizer_type;
  std::string tokenizer_model;  // file or folder
  std::vector<std::string> tokenizer_special_tokens;
  std::string tiktoken_pattern;  // v1, v2; empty: v2
  std::int64_t tiktoken_num_special_tokens = 1000;
  bool tokenizer_hf_no_include_special_tokens = false;
  std::string tokenizer_metadata;  // JSON file or text beside the tokenizer
  std::string chat_template;       // file or text; empty: the tokenizer's own
  bool tokenizer_sentencepiece_legacy = false;
  bool tokenizer_sentencepiece_ignore_extra_whitespaces = true;
  std::string vocab_file;
  std::string merge_file;
  std::int64_t null_tokenizer_eod_id = -1;  // resolved
  std::int64_t null_tokenizer_pad_id = -1;
  std::int64_t null_tokenizer_vocab_size =
      0;  // resolved: --vocab-size as given, without the end token
  bool mock_data = false;
  bool sft = false;  // conversations (datasets/sft_dataset.h)
  std::string sft_tokenizer_prompt_format = "nemotron-h-aligned";
  bool allow_ambiguous_pad_tokens = false;
  // Documents cut in three and put together in another order (datasets/fim.h)
  bool fim_data = false;
  double fim_rate = 0.5;
  double fim_spm_rate = 0.5;
  std::string fim_split_sample;  // a token; empty: whole samples
  std::optional<double> fim_fragment_rate;
  std::string fim_no_prefix;
  std::string fim_eod_token = "<|endoftext|>";
  std::string fim_prefix_token = "<fim_prefix>";
  std::string fim_middle_token = "<fim_middle>";
  std::string fim_suffix_token = "<fim_suffix>";
  std::string fim_pad_token = "<fim_pad>";
};

struct OptimizerConfig {
  std::string optimizer = "adam";  // adam, sgd, muon
  double lr = 0.0;
  double min_lr = 0.0;
  std::string lr_decay_style = "linear";     // constant, linear, cosine, inverse-square-root, WSD
  std::optional<double> lr_warmup_fraction;  // of the decay
  std::int64_t lr_warmup_iters = 0;
  std::int64_t lr_warmup_samples = 0;
  double lr_warmup_init = 0.0;
  std::int64_t lr_decay_iters = 0;  // resolved: train_iters
  std::int64_t lr_decay_samples = 0;
  std::string lr_wsd_decay_style = "exponential";  // linear, cosine, minus_sqrt
  std::int64_t lr_wsd_decay_iters = 0;             // the last part of WSD's decay
  std::int64_t lr_wsd_decay_samples = 0;
  // Of word embeddings and output layer; none: lr, min_lr
  std::optional<double> decoupled_lr;
  std::optional<double> decoupled_min_lr;
  double weight_decay = 0.01;
  std::optional<double> start_weight_decay;  // unless constant
  std::optional<double> end_weight_decay;
  std::string weight_decay_incr_style = "constant";  // linear, cosine: over the whole run
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double sgd_momentum = 0.9;
  double muon_momentum = 0.9;
  std::int64_t muon_num_ns_steps = 5;
  std::string muon_coefficient_type = "quintic";  // simple, quintic
  std::string muon_scale_mode = "spectral";       // spectral, unit_rms_norm, shape_scaling
  double muon_extra_scale_factor = 1.0;
  bool muon_nesterov = false;
  bool muon_split_qkv = true;
  bool optimizer_cpu_offload = false;
  double optimizer_offload_fraction = 1.0;  // of the elements
  bool overlap_cpu_optimizer_d2h_h2d = false;
  // dtypes of the optimizer's state: fp32, bf16, fp16; fp32 unless use_precision_aware_optimizer
  bool use_precision_aware_optimizer = false;
  std::string main_grads_dtype = "fp32";
  std::string main_params_dtype = "fp32";
  std::string exp_avg_dtype = "fp32";
  std::string exp_avg_sq_dtype = "fp32";
  double soap_shampoo_beta = 0.95;
  std::int64_t soap_precondition_frequency = 10;  // steps
  double clip_grad = 1.0;                         // largest global L2 norm; 0: no clipping
  std::optional<double> loss_scale;               // static; none: dynamic with fp16, else 1
  double initial_loss_scale = 4294967296.0;
  double min_loss_scale = 1.0;
  double loss_scale_window = 1000;             // steps without overflow until the scale doubles
  std::int64_t hysteresis = 2;                 // overflows until it halves
  std::vector<std::string> freeze_parameters;  // patterns of names
  bool apply_wd_to_qk_layernorm = false;
  bool override_opt_param_scheduler = false;
  bool use_checkpoint_opt_param_scheduler = false;
};

struct TrainingConfig {
  std::string precision = "fp32";  // fp32, bf16 (--bf16), fp16 (--fp16), fp64 (--fp64, tests)
  std::int64_t micro_batch_size = 1;
  std::int64_t global_batch_size = 0;    // resolved: micro_batch_size * dp, or the schedule's last
  std::string step_batch_size_schedule;  // "0:768 250B:1536"; empty: constant (batch_schedule.h)
  std::int64_t train_iters = 0;
  std::int64_t train_samples = 0;  // 0: train_iters tells the run's length
  std::int64_t eval_interval = 0;  // 0: no evaluation during training
  std::int64_t eval_iters = 100;
  std::int64_t start_eval_at_iter = 0;  // no evaluation during training before this iteration
  bool decrease_batch_size_if_needed = false;  // to what micro_batch_size * dp divides
  std::int64_t eval_global_batch_size = 0;     // resolved: global_batch_size
  std::int64_t eval_micro_batch_size = 0;      // resolved: micro_batch_size
  bool full_validation = false;           // whole validation sets instead of eval_iters batches
  bool multiple_validation_sets = false;  // one loss for each of data.valid_data_path
  std::vector<std::string> iterations_to_skip;  // numbers of iterations, counted from 1
  std::int64_t log_interval = 100;
  bool log_throughput = false;
  bool log_params_norm = false;
  bool log_num_zeros_in_grad = false;
  std::int64_t exit_interval = 0;    // 0: none
  double exit_duration_in_mins = 0;  // 0: none
  bool exit_signal_handler = false;  // resolved: also where ..._for_training is given
  bool exit_signal_handler_for_training = false;
  std::string exit_signal = "SIGTERM";
  std::string kill_switch_file;                // save and exit once it exists
  bool check_for_nan_in_loss_and_grad = true;  // resolved: not with fp16, whose overflows are usual
  bool check_for_spiky_loss = false;
  bool check_for_large_grads = false;
  bool skip_train = false;
  bool deterministic_mode = false;
  std::string loss_mean = "tokens";  // micro-batches: a mean of their means, as Megatron's default
  std::int64_t error_injection_rate = 0;  // one of this many results is made wrong; 0: none
  std::string error_injection_type = "transient_error";
  std::string rerun_mode = "validate_results";
  std::string cuda_graph_impl = "none";  // full_iteration: the step is recorded once and replayed
  std::int64_t cuda_graph_warmup_steps = 3;
  std::vector<std::string> cuda_graph_modules;  // cuda_graph_impl local; empty: whole layers
  std::string metrics_file;                     // JSON lines, full precision
  std::string trace;  // folder for traces of actions and kernels; resolved: with `profile`
  bool profile = false;
  std::int64_t profile_step_start = 10;    // the trace begins after this many iterations
  std::int64_t profile_step_end = 12;      // and ends after this many
  std::vector<std::string> profile_ranks;  // numbers; empty: all
  std::string device = "auto";
};

// What a run tells about itself; nothing here changes a result.
struct LoggingConfig {
  std::string tensorboard_dir;
  std::int64_t tensorboard_log_interval = 1;
  std::int64_t tensorboard_queue_size = 1000;  // events
  bool log_timers_to_tensorboard = false;
  bool log_loss_scale_to_tensorboard = true;
  bool log_validation_ppl_to_tensorboard = false;
  bool log_memory_to_tensorboard = false;
  bool log_world_size_to_tensorboard = false;
  std::int64_t timing_log_level = 0;         // 0 to 2
  std::string timing_log_option = "minmax";  // max, minmax, all
  bool barrier_with_l1_time = true;          // ranks meet before a timer of level 1 starts
  bool log_progress = false;                 // progress.txt beside the checkpoints
  bool log_energy = false;                   // of the GPUs
  bool log_max_attention_logit = false;
  std::int64_t log_memory_interval = 0;    // 0: after the first iterations only
  std::vector<std::string> sample_prompt;  // continued by the model at each evaluation
  std::int64_t sample_length = 64;         // tokens of each continuation
  std::string log_format = "auto";         // terminal, megatron
  bool quiet = false;
};

struct CheckpointConfig {
  std::string save;
  std::string load;
  std::string pretrained_checkpoint;      // weights to start from while `load` holds none
  std::int64_t save_interval = 0;         // above 0 where `save` is set
  std::int64_t save_retain_interval = 0;  // 0: none special
  std::int64_t keep_checkpoints = 0;      // newest K kept; 0: all
  std::int64_t ckpt_step = 0;             // 0: the tracker's
  bool finetune = false;
  bool no_load_optim = false;
  bool no_save_optim = false;
  bool exit_on_missing_checkpoint = false;
  bool use_checkpoint_args = false;  // model options come from the checkpoint
  bool use_mp_args_from_checkpoint_args = false;
  bool use_tokenizer_model_from_checkpoint_args = true;
  std::string lora_load;               // adapter to start from, a folder of PEFT's files
  std::string export_kd_teacher_load;  // model that this one learns from; empty: none
  std::string export_kd_cfg;           // YAML file (distillation.h); empty: the usual
};

struct RunConfig {
  ModelConfig model;
  ParallelConfig parallel;
  DataConfig data;
  OptimizerConfig optimizer;
  TrainingConfig training;
  LoggingConfig logging;
  CheckpointConfig checkpoint;
};

}  // namespace pentatron::config
