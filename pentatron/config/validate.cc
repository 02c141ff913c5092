// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/validate.h"

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/adapters.h"
#include "pentatron/config/attention_window.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/distillation.h"
#include "pentatron/config/heterogeneous_layers.h"
#include "pentatron/config/latent_attention.h"
#include "pentatron/config/layer_pattern.h"
#include "pentatron/config/mup.h"
#include "pentatron/config/pipeline_layout.h"
#include "pentatron/config/validate_context.h"
#include "pentatron/config/validate_layer.h"
#include "pentatron/config/validate_precision.h"
#include "pentatron/config/validate_training.h"

namespace pentatron::config {
namespace {

constexpr std::int64_t kMaxModelSize = 1'000'000'000;
constexpr std::int64_t kMaxRanks = 10'000'000;

void require(std::int64_t value, std::string_view option, std::string_view dest,
             Problems& problems) {
  if (value > 0 || problems.about(dest)) return;
  problems.add(fmt::format("{} is missing", option), dest);
}

// Keeps later products in 64 bits.
bool all_below(std::initializer_list<std::pair<std::string_view, std::int64_t>> values,
               std::int64_t limit, Problems& problems) {
  bool fine = true;
  for (const auto& [option, value] : values) {
    if (value <= limit) continue;
    problems.add(fmt::format("{} {} is too large: at most {}", option, value, limit));
    fine = false;
  }
  return fine;
}

bool resolve_layout(ParallelConfig& parallel, Problems& problems) {
  if (!all_below({{"--world-size", parallel.world_size},
                  {"--tensor-model-parallel-size", parallel.tensor_model_parallel_size},
                  {"--pipeline-model-parallel-size", parallel.pipeline_model_parallel_size},
                  {"--context-parallel-size", parallel.context_parallel_size}},
                 kMaxRanks, problems)) {
    return false;
  }
  if (parallel.world_size < 1 || parallel.tensor_model_parallel_size < 1 ||
      parallel.pipeline_model_parallel_size < 1 || parallel.context_parallel_size < 1 ||
      parallel.num_distributed_optimizer_instances < 1) {
    problems.add(fmt::format(
        "--world-size {}, --tensor-model-parallel-size {}, --pipeline-model-parallel-size {}, "
        "--context-parallel-size {} and --num-distributed-optimizer-instances {} must be at "
        "least 1",
        parallel.world_size, parallel.tensor_model_parallel_size,
        parallel.pipeline_model_parallel_size, parallel.context_parallel_size,
        parallel.num_distributed_optimizer_instances));
    return false;
  }
  if (parallel.rank < 0 || parallel.rank >= parallel.world_size) {
    problems.add(fmt::format("--rank {} must be from 0 to --world-size {} - 1", parallel.rank,
                             parallel.world_size),
                 "rank");
  }
  const std::int64_t tp = parallel.tensor_model_parallel_size;
  const std::int64_t pp = parallel.pipeline_model_parallel_size;
  const std::int64_t cp = parallel.context_parallel_size;
  if (tp > parallel.world_size || pp > parallel.world_size || cp > parallel.world_size ||
      parallel.world_size % (tp * pp) != 0 || parallel.world_size / (tp * pp) % cp != 0) {
    problems.add(fmt::format(
        "{} ranks do not divide by --tensor-model-parallel-size {} x "
        "--pipeline-model-parallel-size {} x --context-parallel-size {}: change the number of "
        "ranks (--world-size or the launcher's) or these sizes",
        parallel.world_size, tp, pp, cp));
    return false;
  }
  parallel.data_parallel_size = parallel.world_size / (tp * pp) / cp;
  if (parallel.data_parallel_size % parallel.num_distributed_optimizer_instances != 0) {
    problems.add(fmt::format(
        "--num-distributed-optimizer-instances {} does not divide the {} data-parallel ranks of "
        "{}: change it, or the number of ranks (--world-size or the launcher's)",
        parallel.num_distributed_optimizer_instances, parallel.data_parallel_size,
        parallel.world_size));
    return false;
  }
  return true;
}

void resolve_query_groups(ModelConfig& model, std::int64_t tp, Problems& problems) {
  const std::int64_t heads = model.num_attention_heads;
  if (heads % tp != 0) {
    problems.add(
        fmt::format("--num-attention-heads {} does not divide by "
                    "--tensor-model-parallel-size {}",
                    heads, tp));
  }
  if (!model.group_query_attention) {
    model.num_query_groups = heads;
    return;
  }
  if (model.num_query_groups == 0) model.num_query_groups = 1;
  const std::int64_t groups = model.num_query_groups;
  if (groups > heads || heads % groups != 0) {
    problems.add(fmt::format("--num-attention-heads {} does not divide by --num-query-groups {}",
                             heads, groups));
  }
  if (groups % tp != 0 && tp % groups != 0) {
    problems.add(
        fmt::format("--num-query-groups {} must be a multiple or a divisor of "
                    "--tensor-model-parallel-size {}",
                    groups, tp));
  }
}

void resolve_widths(ModelConfig& model, std::int64_t tp, Problems& problems) {
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t heads = model.num_attention_heads;
  resolve_latent_attention(model, problems);
  if (model.kv_channels == 0) {
    if (hidden % heads != 0) {
      problems.add(
          fmt::format("--hidden-size {} does not divide by --num-attention-heads {}: "
                      "change one of them or set --kv-channels",
                      hidden, heads));
    }
    model.kv_channels = hidden / heads;
  }
  if (model.ffn_hidden_size == 0) {
    model.ffn_hidden_size = model.swiglu ? hidden * 8 / 3 / 64 * 64 : 4 * hidden;
    if (model.ffn_hidden_size == 0 && !problems.about("ffn_hidden_size")) {
      problems.add(
          fmt::format("--hidden-size {} with --swiglu gives a feed-forward width of 0: "
                      "set --ffn-hidden-size",
                      hidden));
    }
  }
  if (model.ffn_hidden_size % tp != 0) {
    problems.add(
        fmt::format("--ffn-hidden-size {} does not divide by "
                    "--tensor-model-parallel-size {}",
                    model.ffn_hidden_size, tp));
  }
  resolve_mup(model, problems);
  check_layer(model, problems);
  resolve_heterogeneous_layers(model, tp, problems);
}

void check_layer_patterns(const ModelConfig& model, Problems& problems) {
  try {
    static_cast<void>(layer_pattern(model.no_rope_freq, model.num_layers, "--no-rope-freq"));
  } catch (const Error& error) {
    problems.add(error.what());
  }
}

void resolve_window(ModelConfig& model, Problems& problems) {
  try {
    model.window_size = canonical_window(model.window_size);
    static_cast<void>(window_of_layers(model));
  } catch (const Error& error) {
    problems.add(error.what());
  }
}

void resolve_pipeline(const ModelConfig& model, const ParallelConfig& parallel,
                      Problems& problems) {
  if (model.num_layers == 0) return;  // said already
  check_layer_patterns(model, problems);
  if (!all_below(
          {{"--decoder-first-pipeline-num-layers", parallel.decoder_first_pipeline_num_layers},
           {"--decoder-last-pipeline-num-layers", parallel.decoder_last_pipeline_num_layers},
           {"--num-layers-per-virtual-pipeline-stage",
            parallel.num_layers_per_virtual_pipeline_stage},
           {"--num-virtual-stages-per-pipeline-rank",
            parallel.num_virtual_stages_per_pipeline_rank},
           {"--microbatch-group-size-per-virtual-pipeline-stage",
            parallel.microbatch_group_size_per_vp_stage},
           {"--pipeline-schedule-max-in-flight", parallel.pipeline_schedule_max_in_flight},
           {"--recompute-num-layers", model.recompute_num_layers}},
          kMaxModelSize, problems)) {
    return;
  }
  try {
    static_cast<void>(plan_pipeline(model, parallel));
    static_cast<void>(schedule_costs(parallel));
    if (model.position_embedding_type == "relative" && num_pipeline_chunks(model, parallel) > 1) {
      problems.add(
          "--position-embedding-type relative: all layers of a rank share one table of biases, so "
          "each rank runs one stage: drop the options that give a rank several");
    }
    if (parallel.pipeline_schedule.starts_with("zb-") && num_pipeline_chunks(model, parallel) > 1) {
      problems.add(
          fmt::format("--pipeline-schedule {} runs one stage a rank: drop it, or the "
                      "options that give a rank several",
                      parallel.pipeline_schedule));
    }
  } catch (const Error& error) {
    problems.add(error.what());
  }
}

void resolve_recompute(ModelConfig& model, Problems& problems) {
  if (recompute(model) == Recompute::kLayers) {
    if (recompute_method(model) == RecomputeMethod::kNone) {
      problems.add(
          "--recompute-granularity full needs --recompute-method uniform or block: give one, or "
          "--recompute-granularity selective");
    }
    if (model.recompute_num_layers < 1) {
      problems.add(fmt::format(
          "--recompute-granularity full needs --recompute-num-layers of at least 1, not {}",
          model.recompute_num_layers));
    }
  }
  if (recompute(model) != Recompute::kModules) return;
  if (!model.recompute_method.empty() || model.recompute_num_layers > 0) {
    problems.add(fmt::format(
        "--recompute-granularity selective takes --recompute-modules, not --recompute-method '{}' "
        "and --recompute-num-layers {}: drop these two, or use --recompute-granularity full",
        model.recompute_method, model.recompute_num_layers));
  }
  if (model.recompute_modules.empty()) model.recompute_modules = {"core_attn"};
  for (const std::string& name : model.recompute_modules) {
    if (name == "core_attn" || name == "mlp" || name == "layernorm") continue;
    problems.add(fmt::format("--recompute-modules {}: expected core_attn, layernorm or mlp",
                             quoted_for_message(name)));
  }
}

bool is_offload_module(std::string_view name) {
  return name == "attn_norm" || name == "qkv_linear" || name == "core_attn" ||
         name == "attn_proj" || name == "mlp_norm";
}

// Megatron's names of parts of a layer that no layer here has.
std::string_view absent_part(std::string_view name) {
  if (name == "expert_fc1" || name == "moe_act" || name == "fused_group_mlp") return "experts";
  return name == "gdp_qkv" ? "gated delta products" : std::string_view();
}

void check_offload(const ModelConfig& model, Problems& problems) {
  if (!model.fine_grained_activation_offloading) return;
  constexpr const char* kModules = "attn_norm, qkv_linear, core_attn, attn_proj or mlp_norm";
  if (model.offload_modules.empty()) {
    problems.add(fmt::format("--fine-grained-activation-offloading needs --offload-modules, of {}",
                             kModules),
                 "offload_modules");
  }
  bool qkv = false;
  for (const std::string& name : model.offload_modules) {
    qkv = qkv || name == "qkv_linear";
    if (!is_offload_module(name)) {
      const std::string_view of = absent_part(name);
      problems.add(fmt::format("--offload-modules {}: expected {}{}", quoted_for_message(name),
                               kModules,
                               of.empty() ? "" : fmt::format("; this model has no {}", of)));
    }
  }
  const auto& again = model.recompute_modules;
  if (qkv && recompute(model) == Recompute::kModules &&
      std::find(again.begin(), again.end(), "layernorm") != again.end()) {
    problems.add(
        "--offload-modules qkv_linear would move the norm's output, which --recompute-modules "
        "layernorm makes again instead of keeping it: drop one of the two");
  }
  if (recompute(model) == Recompute::kLayers &&
      recompute_method(model) == RecomputeMethod::kUniform) {
    problems.add(
        "--fine-grained-activation-offloading with --recompute-granularity full "
        "--recompute-method uniform: every layer is made again and keeps nothing to move; drop one "
        "of the two, or take --recompute-method block with fewer layers than a stage has");
  }
}

// A slice a rank of what all tensor-parallel ranks keep alike.
void check_distributed_saves(const ModelConfig& model, const ParallelConfig& parallel,
                             Problems& problems) {
  if (!model.distribute_saved_activations) return;
  constexpr const char* kOption = "--distribute-saved-activations";
  if (parallel.tensor_model_parallel_size == 1) {
    problems.add(
        fmt::format("{} deals them to tensor-parallel ranks: --tensor-model-parallel-size 1 is "
                    "one; raise it or drop the option",
                    kOption));
  } else if (parallel.sequence_parallel) {
    problems.add(
        fmt::format("{} with --sequence-parallel: each of --tensor-model-parallel-size {} ranks "
                    "has its own rows already; drop one of the two",
                    kOption, parallel.tensor_model_parallel_size));
  }
  if (recompute(model) != Recompute::kLayers) {
    problems.add(
        fmt::format("{} keeps the inputs of whole layers that are computed again: it "
                    "needs --recompute-granularity full, not '{}'",
                    kOption, model.recompute_granularity));
  }
}

void resolve_model(ModelConfig& model, ParallelConfig& parallel, Problems& problems) {
  require(model.num_layers, "--num-layers", "num_layers", problems);
  require(model.hidden_size, "--hidden-size", "hidden_size", problems);
  require(model.num_attention_heads, "--num-attention-heads", "num_attention_heads", problems);
  require(model.max_position_embeddings, "--max-position-embeddings", "max_position_embeddings",
          problems);
  require(model.seq_length, "--seq-length", "seq_length", problems);
  if (!all_below({{"--num-layers", model.num_layers},
                  {"--hidden-size", model.hidden_size},
                  {"--ffn-hidden-size", model.ffn_hidden_size},
                  {"--num-attention-heads", model.num_attention_heads},
                  {"--kv-channels", model.kv_channels},
                  {"--mup-base-hidden-size", model.mup_base_hidden_size},
                  {"--num-query-groups", model.num_query_groups},
                  {"--q-lora-rank", model.q_lora_rank},
                  {"--kv-lora-rank", model.kv_lora_rank},
                  {"--qk-head-dim", model.qk_head_dim},
                  {"--qk-pos-emb-head-dim", model.qk_pos_emb_head_dim},
                  {"--v-head-dim", model.v_head_dim},
                  {"--max-position-embeddings", model.max_position_embeddings},
                  {"--seq-length", model.seq_length},
                  {"--vocab-size", model.vocab_size},
                  {"--padded-vocab-size", model.padded_vocab_size},
                  {"--make-vocab-size-divisible-by", model.make_vocab_size_divisible_by}},
                 kMaxModelSize, problems)) {
    return;
  }
  const std::int64_t tp = parallel.tensor_model_parallel_size;
  if (model.num_layers > 0) resolve_window(model, problems);
  resolve_pipeline(model, parallel, problems);
  resolve_recompute(model, problems);
  check_offload(model, problems);
  if (model.max_position_embeddings > 0 && model.seq_length > model.max_position_embeddings) {
    problems.add(fmt::format("--seq-length {} is longer than --max-position-embeddings {}",
                             model.seq_length, model.max_position_embeddings));
  }
  // One rank has all rows; scripts of Megatron-LM set it all the same.
  if (tp == 1) parallel.sequence_parallel = false;
  check_distributed_saves(model, parallel, problems);
  if (model.num_attention_heads > 0) resolve_query_groups(model, tp, problems);
  if (model.hidden_size > 0 && model.num_attention_heads > 0) resolve_widths(model, tp, problems);
  check_context_parallel(model, parallel, problems);
  resolve_adapters(model, problems);
}

void resolve_tokenizer(RunConfig& config, Purpose purpose, Problems& problems) {
  DataConfig& data = config.data;
  // Megatron's pretrain_gpt.py sets this default itself, not its parser.
  if (data.tokenizer_type.empty() && purpose == Purpose::kTrain &&
      !problems.about("tokenizer_type")) {
    data.tokenizer_type = "GPT2BPETokenizer";
  }
  if (tokenizer_kind(data) == TokenizerKind::kGpt2Bpe) {
    if (data.vocab_file.empty() && !problems.about("vocab_file")) {
      problems.add("--tokenizer-type GPT2BPETokenizer needs --vocab-file (vocab.json)");
    }
    if (data.merge_file.empty() && !problems.about("merge_file")) {
      problems.add("--tokenizer-type GPT2BPETokenizer needs --merge-file (merges.txt)");
    }
  }
  if (tokenizer_kind(data) != TokenizerKind::kNull) return;
  if (data.null_tokenizer_vocab_size == 0) data.null_tokenizer_vocab_size = config.model.vocab_size;
  if (data.null_tokenizer_vocab_size == 0 && !problems.about("vocab_size")) {
    problems.add("--tokenizer-type NullTokenizer needs --vocab-size", "vocab_size");
  }
  if (data.null_tokenizer_eod_id < 0) data.null_tokenizer_eod_id = data.null_tokenizer_vocab_size;
  if (data.null_tokenizer_eod_id > data.null_tokenizer_vocab_size) {
    problems.add(
        fmt::format("--null-tokenizer-eod-id {} is beyond the vocabulary of --vocab-size "
                    "{} and its end token",
                    data.null_tokenizer_eod_id, data.null_tokenizer_vocab_size));
  }
}

// It gathers what is sharded.
void check_parameter_gather(const ParallelConfig& p, Problems& problems) {
  if (!p.overlap_param_gather || shards_over_data(p)) return;
  problems.add(fmt::format(
      "--overlap-param-gather gathers sharded parameters, and {} shards nothing: it needs "
      "--use-distributed-optimizer, or --use-megatron-fsdp with another "
      "--data-parallel-sharding-strategy than no_shard",
      p.use_megatron_fsdp
          ? fmt::format("--data-parallel-sharding-strategy {}", p.data_parallel_sharding_strategy)
          : "a run without them"));
}

void check_buckets(const ParallelConfig& p, Problems& problems) {
  if (p.ddp_bucket_size == 0 || p.ddp_num_buckets == 0) return;
  problems.add(fmt::format(
      "--ddp-bucket-size {} and --ddp-num-buckets {} both say how large buckets of gradients are: "
      "drop one",
      p.ddp_bucket_size, p.ddp_num_buckets));
}

bool updates_matrices(const OptimizerConfig& optimizer) {
  return optimizer.optimizer == "muon" || optimizer.optimizer == "soap";
}

// Stages add up the gradients of their copies of the biases, which takes equal shards; Muon and
// SOAP deal whole matrices to ranks, other ones in each stage.
void check_shared_biases(const RunConfig& config, Problems& problems) {
  const ParallelConfig& parallel = config.parallel;
  const bool sharded = shards_over_data(parallel);
  if (config.model.position_embedding_type != "relative" || !updates_matrices(config.optimizer) ||
      parallel.pipeline_model_parallel_size == 1 || !sharded) {
    return;
  }
  problems.add(fmt::format(
      "--position-embedding-type relative with --optimizer {} on --pipeline-model-parallel-size "
      "{} stages does not go with --use-distributed-optimizer or --use-megatron-fsdp: drop one",
      config.optimizer.optimizer, parallel.pipeline_model_parallel_size));
}

}  // namespace

void resolve_into(RunConfig& config, const Origins& origins, Purpose purpose, Problems& problems) {
  const bool layout_fine = resolve_layout(config.parallel, problems);
  if (layout_fine) resolve_model(config.model, config.parallel, problems);
  resolve_tokenizer(config, purpose, problems);
  check_shared_biases(config, problems);
  check_parameter_gather(config.parallel, problems);
  check_buckets(config.parallel, problems);
  if (layout_fine && config.model.seq_length > 0) check_dynamic_context(config, problems);
  if (purpose != Purpose::kTrain) return;
  if (layout_fine) check_fp8(config, problems);
  check_optimizer_state(config, problems);
  check_distillation(config, problems);
  resolve_training(config, origins, layout_fine, problems);
}

void resolve(RunConfig& config, Purpose purpose) {
  Problems problems;
  resolve_into(config, {}, purpose, problems);
  problems.throw_if_any();
}

void resolve_vocab(RunConfig& config, std::int64_t tokenizer_vocab_size) {
  ModelConfig& model = config.model;
  PENTATRON_CHECK(tokenizer_vocab_size > 0 && tokenizer_vocab_size <= kMaxModelSize, kConfig,
                  "the tokenizer has {} tokens: expected from 1 to {}", tokenizer_vocab_size,
                  kMaxModelSize);
  const bool counts_without_end = tokenizer_kind(config.data) == TokenizerKind::kNull;
  if (model.vocab_size == 0 || counts_without_end) {
    model.vocab_size = tokenizer_vocab_size;
  }
  PENTATRON_CHECK(model.vocab_size >= tokenizer_vocab_size, kConfig,
                  "--vocab-size {} is smaller than the tokenizer's {} tokens: raise or drop it",
                  model.vocab_size, tokenizer_vocab_size);
  const std::int64_t tp = config.parallel.tensor_model_parallel_size;
  PENTATRON_CHECK(
      model.make_vocab_size_divisible_by > 0 && tp > 0, kConfig,
      "--make-vocab-size-divisible-by {} and --tensor-model-parallel-size {} must be at "
      "least 1",
      model.make_vocab_size_divisible_by, tp);
  if (model.padded_vocab_size == 0) {
    const std::int64_t multiple = model.make_vocab_size_divisible_by * tp;
    model.padded_vocab_size = (model.vocab_size + multiple - 1) / multiple * multiple;
  }
  PENTATRON_CHECK(model.padded_vocab_size >= model.vocab_size && model.padded_vocab_size % tp == 0,
                  kConfig,
                  "--padded-vocab-size {} must be at least the vocabulary of {} and divide by "
                  "--tensor-model-parallel-size {}",
                  model.padded_vocab_size, model.vocab_size, tp);
  check_fp8_vocabulary(config);
}

ParsedOptions load_options(const ParseRequest& request, Purpose purpose) {
  Problems problems;
  ParsedOptions parsed = parse_into(request, problems);
  if (parsed.action == Action::kHelp) return parsed;
  resolve_into(parsed.config, parsed.origins, purpose, problems);
  problems.throw_if_any();
  return parsed;
}

}  // namespace pentatron::config
