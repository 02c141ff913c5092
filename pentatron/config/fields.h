// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/config.h"

// Each struct's fields once, for what walks over all of them (JSON, hash). config_json_test fails
// when a field is missing here.
namespace pentatron::config {

template <typename Config, typename Visit>
void visit_model(Config& c, Visit&& visit) {
  visit("num_layers", c.num_layers);
  visit("hidden_size", c.hidden_size);
  visit("ffn_hidden_size", c.ffn_hidden_size);
  visit("num_attention_heads", c.num_attention_heads);
  visit("kv_channels", c.kv_channels);
  visit("group_query_attention", c.group_query_attention);
  visit("num_query_groups", c.num_query_groups);
  visit("max_position_embeddings", c.max_position_embeddings);
  visit("seq_length", c.seq_length);
  visit("vocab_size", c.vocab_size);
  visit("padded_vocab_size", c.padded_vocab_size);
  visit("make_vocab_size_divisible_by", c.make_vocab_size_divisible_by);
  visit("untie_embeddings_and_output_weights", c.untie_embeddings_and_output_weights);
  visit("normalization", c.normalization);
  visit("layernorm_epsilon", c.layernorm_epsilon);
  visit("position_embedding_type", c.position_embedding_type);
  visit("rotary_base", c.rotary_base);
  visit("rotary_percent", c.rotary_percent);
  visit("swiglu", c.swiglu);
  visit("add_bias_linear", c.add_bias_linear);
  visit("add_qkv_bias", c.add_qkv_bias);
  visit("hidden_dropout", c.hidden_dropout);
  visit("attention_dropout", c.attention_dropout);
  visit("init_method_std", c.init_method_std);
  visit("seed", c.seed);
  visit("reset_position_ids", c.reset_position_ids);
  visit("reset_attention_mask", c.reset_attention_mask);
  visit("eod_mask_loss", c.eod_mask_loss);
  visit("recompute_granularity", c.recompute_granularity);
  visit("recompute_method", c.recompute_method);
  visit("recompute_num_layers", c.recompute_num_layers);
  visit("recompute_modules", c.recompute_modules);
}

template <typename Config, typename Visit>
void visit_parallel(Config& c, Visit&& visit) {
  visit("world_size", c.world_size);
  visit("rank", c.rank);
  visit("local_rank", c.local_rank);
  visit("master_addr", c.master_addr);
  visit("master_port", c.master_port);
  visit("tensor_model_parallel_size", c.tensor_model_parallel_size);
  visit("pipeline_model_parallel_size", c.pipeline_model_parallel_size);
  visit("context_parallel_size", c.context_parallel_size);
  visit("expert_model_parallel_size", c.expert_model_parallel_size);
  visit("data_parallel_size", c.data_parallel_size);
  visit("decoder_first_pipeline_num_layers", c.decoder_first_pipeline_num_layers);
  visit("decoder_last_pipeline_num_layers", c.decoder_last_pipeline_num_layers);
  visit("account_for_embedding_in_pipeline_split", c.account_for_embedding_in_pipeline_split);
  visit("account_for_loss_in_pipeline_split", c.account_for_loss_in_pipeline_split);
  visit("pipeline_model_parallel_layout", c.pipeline_model_parallel_layout);
  visit("num_layers_per_virtual_pipeline_stage", c.num_layers_per_virtual_pipeline_stage);
  visit("num_virtual_stages_per_pipeline_rank", c.num_virtual_stages_per_pipeline_rank);
  visit("microbatch_group_size_per_vp_stage", c.microbatch_group_size_per_vp_stage);
  visit("pipeline_schedule", c.pipeline_schedule);
  visit("sequence_parallel", c.sequence_parallel);
  visit("use_distributed_optimizer", c.use_distributed_optimizer);
  visit("use_megatron_fsdp", c.use_megatron_fsdp);
  visit("data_parallel_sharding_strategy", c.data_parallel_sharding_strategy);
  visit("overlap_param_gather", c.overlap_param_gather);
  visit("num_distributed_optimizer_instances", c.num_distributed_optimizer_instances);
  visit("distributed_backend", c.distributed_backend);
  visit("distributed_timeout_minutes", c.distributed_timeout_minutes);
  visit("cpu_threads_per_rank", c.cpu_threads_per_rank);
}

template <typename Config, typename Visit>
void visit_data(Config& c, Visit&& visit) {
  visit("data_path", c.data_path);
  visit("train_data_path", c.train_data_path);
  visit("valid_data_path", c.valid_data_path);
  visit("test_data_path", c.test_data_path);
  visit("validation_set_names", c.validation_set_names);
  visit("split", c.split);
  visit("data_cache_path", c.data_cache_path);
  visit("num_workers", c.num_workers);
  visit("dataloader_type", c.dataloader_type);
  visit("mmap_bin_files", c.mmap_bin_files);
  visit("data_content_hash", c.data_content_hash);
  visit("tokenizer_type", c.tokenizer_type);
  visit("tokenizer_model", c.tokenizer_model);
  visit("tokenizer_special_tokens", c.tokenizer_special_tokens);
  visit("tiktoken_pattern", c.tiktoken_pattern);
  visit("tiktoken_num_special_tokens", c.tiktoken_num_special_tokens);
  visit("tokenizer_hf_no_include_special_tokens", c.tokenizer_hf_no_include_special_tokens);
  visit("vocab_file", c.vocab_file);
  visit("merge_file", c.merge_file);
  visit("null_tokenizer_eod_id", c.null_tokenizer_eod_id);
  visit("null_tokenizer_pad_id", c.null_tokenizer_pad_id);
  visit("null_tokenizer_vocab_size", c.null_tokenizer_vocab_size);
  visit("mock_data", c.mock_data);
}

template <typename Config, typename Visit>
void visit_optimizer(Config& c, Visit&& visit) {
  visit("optimizer", c.optimizer);
  visit("lr", c.lr);
  visit("min_lr", c.min_lr);
  visit("lr_decay_style", c.lr_decay_style);
  visit("lr_warmup_fraction", c.lr_warmup_fraction);
  visit("lr_warmup_iters", c.lr_warmup_iters);
  visit("lr_warmup_samples", c.lr_warmup_samples);
  visit("lr_warmup_init", c.lr_warmup_init);
  visit("lr_decay_iters", c.lr_decay_iters);
  visit("lr_decay_samples", c.lr_decay_samples);
  visit("lr_wsd_decay_style", c.lr_wsd_decay_style);
  visit("lr_wsd_decay_iters", c.lr_wsd_decay_iters);
  visit("lr_wsd_decay_samples", c.lr_wsd_decay_samples);
  visit("decoupled_lr", c.decoupled_lr);
  visit("decoupled_min_lr", c.decoupled_min_lr);
  visit("weight_decay", c.weight_decay);
  visit("start_weight_decay", c.start_weight_decay);
  visit("end_weight_decay", c.end_weight_decay);
  visit("weight_decay_incr_style", c.weight_decay_incr_style);
  visit("adam_beta1", c.adam_beta1);
  visit("adam_beta2", c.adam_beta2);
  visit("adam_eps", c.adam_eps);
  visit("sgd_momentum", c.sgd_momentum);
  visit("muon_momentum", c.muon_momentum);
  visit("muon_num_ns_steps", c.muon_num_ns_steps);
  visit("muon_coefficient_type", c.muon_coefficient_type);
  visit("muon_scale_mode", c.muon_scale_mode);
  visit("muon_extra_scale_factor", c.muon_extra_scale_factor);
  visit("muon_nesterov", c.muon_nesterov);
  visit("muon_split_qkv", c.muon_split_qkv);
  visit("optimizer_cpu_offload", c.optimizer_cpu_offload);
  visit("clip_grad", c.clip_grad);
  visit("loss_scale", c.loss_scale);
  visit("initial_loss_scale", c.initial_loss_scale);
  visit("min_loss_scale", c.min_loss_scale);
  visit("loss_scale_window", c.loss_scale_window);
  visit("hysteresis", c.hysteresis);
  visit("override_opt_param_scheduler", c.override_opt_param_scheduler);
  visit("use_checkpoint_opt_param_scheduler", c.use_checkpoint_opt_param_scheduler);
}

template <typename Config, typename Visit>
void visit_training(Config& c, Visit&& visit) {
  visit("precision", c.precision);
  visit("micro_batch_size", c.micro_batch_size);
  visit("global_batch_size", c.global_batch_size);
  visit("step_batch_size_schedule", c.step_batch_size_schedule);
  visit("train_iters", c.train_iters);
  visit("train_samples", c.train_samples);
  visit("eval_interval", c.eval_interval);
  visit("eval_iters", c.eval_iters);
  visit("start_eval_at_iter", c.start_eval_at_iter);
  visit("eval_global_batch_size", c.eval_global_batch_size);
  visit("eval_micro_batch_size", c.eval_micro_batch_size);
  visit("full_validation", c.full_validation);
  visit("multiple_validation_sets", c.multiple_validation_sets);
  visit("iterations_to_skip", c.iterations_to_skip);
  visit("log_interval", c.log_interval);
  visit("log_throughput", c.log_throughput);
  visit("log_params_norm", c.log_params_norm);
  visit("log_num_zeros_in_grad", c.log_num_zeros_in_grad);
  visit("exit_interval", c.exit_interval);
  visit("exit_duration_in_mins", c.exit_duration_in_mins);
  visit("exit_signal_handler", c.exit_signal_handler);
  visit("exit_signal_handler_for_training", c.exit_signal_handler_for_training);
  visit("exit_signal", c.exit_signal);
  visit("check_for_nan_in_loss_and_grad", c.check_for_nan_in_loss_and_grad);
  visit("kill_switch_file", c.kill_switch_file);
  visit("check_for_spiky_loss", c.check_for_spiky_loss);
  visit("check_for_large_grads", c.check_for_large_grads);
  visit("skip_train", c.skip_train);
  visit("deterministic_mode", c.deterministic_mode);
  visit("metrics_file", c.metrics_file);
  visit("device", c.device);
}

template <typename Config, typename Visit>
void visit_logging(Config& c, Visit&& visit) {
  visit("tensorboard_dir", c.tensorboard_dir);
  visit("tensorboard_log_interval", c.tensorboard_log_interval);
  visit("tensorboard_queue_size", c.tensorboard_queue_size);
  visit("log_timers_to_tensorboard", c.log_timers_to_tensorboard);
  visit("log_loss_scale_to_tensorboard", c.log_loss_scale_to_tensorboard);
  visit("log_validation_ppl_to_tensorboard", c.log_validation_ppl_to_tensorboard);
  visit("log_memory_to_tensorboard", c.log_memory_to_tensorboard);
  visit("log_world_size_to_tensorboard", c.log_world_size_to_tensorboard);
  visit("timing_log_level", c.timing_log_level);
  visit("timing_log_option", c.timing_log_option);
  visit("barrier_with_l1_time", c.barrier_with_l1_time);
  visit("log_progress", c.log_progress);
  visit("log_energy", c.log_energy);
  visit("log_max_attention_logit", c.log_max_attention_logit);
  visit("log_memory_interval", c.log_memory_interval);
  visit("sample_prompt", c.sample_prompt);
  visit("sample_length", c.sample_length);
}

template <typename Config, typename Visit>
void visit_checkpoint(Config& c, Visit&& visit) {
  visit("save", c.save);
  visit("load", c.load);
  visit("save_interval", c.save_interval);
  visit("save_retain_interval", c.save_retain_interval);
  visit("keep_checkpoints", c.keep_checkpoints);
  visit("ckpt_step", c.ckpt_step);
  visit("finetune", c.finetune);
  visit("no_load_optim", c.no_load_optim);
  visit("no_save_optim", c.no_save_optim);
  visit("exit_on_missing_checkpoint", c.exit_on_missing_checkpoint);
}

// visit(room, name, field) over all of them.
template <typename Config, typename Visit>
void visit_fields(Config& c, Visit&& visit) {
  const auto in = [&visit](const char* room) {
    return [&visit, room](const char* name, auto& field) { visit(room, name, field); };
  };
  visit_model(c.model, in("model"));
  visit_parallel(c.parallel, in("parallel"));
  visit_data(c.data, in("data"));
  visit_optimizer(c.optimizer, in("optimizer"));
  visit_training(c.training, in("training"));
  visit_logging(c.logging, in("logging"));
  visit_checkpoint(c.checkpoint, in("checkpoint"));
}

}  // namespace pentatron::config
