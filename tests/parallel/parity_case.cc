// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/parity_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "pentatron/base/philox.h"
#include "pentatron/comm/backend.h"
#include "pentatron/config/option_table.h"
#include "pentatron/config/validate.h"
#include "pentatron/datasets/global_batch_plan.h"
#include "pentatron/datasets/sample_batch.h"
#include "pentatron/models/gpt/gpt_stage.h"
#include "pentatron/tensor/random.h"
#include "pentatron/training/data.h"

namespace pentatron::parity {
namespace {

constexpr std::int64_t kSequence = 16;
constexpr std::int64_t kVocabulary =
    61;  // not a multiple of anything: padding rows exist in every layout
constexpr std::int64_t kGlobalBatch = 8;
constexpr std::uint64_t kDataStream = 77;

// Samples of two documents each (the cut moves), with masks that differ from row to row, one sample
// wholly masked.
class SyntheticSource final : public datasets::SampleSource {
 public:
  [[nodiscard]] std::int64_t num_samples() const override { return 64; }
  [[nodiscard]] std::int64_t length(std::int64_t) const override { return kSequence; }
  [[nodiscard]] datasets::Sample sample(std::int64_t i) const override {
    std::vector<std::int64_t> tokens, labels;
    std::vector<float> mask;
    datasets::SampleSequence sequence;
    const std::int64_t cut = 3 + i % 10;
    for (std::int64_t t = 0; t < kSequence; ++t) {
      const auto key = static_cast<std::uint64_t>(i * (kSequence + 1) + t);
      const auto token = [](std::uint64_t k) {
        return static_cast<std::int64_t>(philox_uniform(1, kDataStream, k) * kVocabulary);
      };
      tokens.push_back(token(key));
      labels.push_back(token(key + 1));
      const bool masked = i % 7 == 5 || t == cut - 1 || (i % 3 == 1 && t % 4 != 0);
      mask.push_back(masked ? 0.0F : 1.0F);
      sequence.positions.push_back(t < cut ? t : t - cut);
    }
    sequence.runs = {static_cast<std::int32_t>(cut), static_cast<std::int32_t>(kSequence - cut)};
    datasets::Sample sample;
    sample.sequences.emplace(datasets::Sample::kText, std::move(sequence));
    sample.fields = {{"tokens", tokens}, {"labels", labels}, {"loss_mask", mask}};
    return sample;
  }
  [[nodiscard]] std::string identity() const override { return "synthetic"; }
};

// The same as a rank reads it that may have a fault.
class SourceOfRank final : public datasets::SampleSource {
 public:
  SourceOfRank(const CaseOptions& options, const comm::ParallelContext& rank)
      : options_(options), rank_(rank) {}
  [[nodiscard]] std::int64_t num_samples() const override { return source_.num_samples(); }
  [[nodiscard]] std::int64_t length(std::int64_t i) const override { return source_.length(i); }
  [[nodiscard]] datasets::Sample sample(std::int64_t i) const override {
    return options_.read ? options_.read(source_, i, rank_) : source_.sample(i);
  }
  [[nodiscard]] std::string identity() const override { return source_.identity(); }

 private:
  SyntheticSource source_;
  const CaseOptions& options_;
  const comm::ParallelContext& rank_;
};

double largest(const std::map<std::string, Tensor>& tensors) {
  double value = 0;
  for (const auto& [name, t] : tensors) value = std::max(value, t.abs().max().item<double>());
  return value;
}

std::string compare_tensors(const char* what, const std::map<std::string, Tensor>& reference,
                            const std::map<std::string, Tensor>& other, double tolerance) {
  if (reference.size() != other.size()) {
    return fmt::format("{}: {} tensors against {}", what, other.size(), reference.size());
  }
  constexpr double kShareOfModel = 1e-3;
  const double model_scale = kShareOfModel * largest(reference);
  std::string worst;
  double worst_excess = 0.0;
  for (const auto& [name, expected] : reference) {
    const auto found = other.find(name);
    if (found == other.end()) return fmt::format("{}: {} is missing", what, name);
    const double scale = std::max(expected.abs().max().item<double>(), model_scale);
    const double error = found->second.sub(expected).abs().max().item<double>();
    if (error <= tolerance * scale) continue;
    // Not a number counts as the worst of all.
    const double excess = std::isnan(error) ? HUGE_VAL : error - tolerance * scale;
    if (excess > worst_excess) {
      worst_excess = excess;
      worst = fmt::format("{} {}: off by {:.3e}, scale {:.3e}", what, name, error, scale);
    }
  }
  return worst;
}

std::string compare_numbers(const char* what, const std::vector<double>& reference,
                            const std::vector<double>& other, double tolerance) {
  if (reference.size() != other.size()) {
    return fmt::format("{}: {} steps against {}", what, other.size(), reference.size());
  }
  for (std::size_t i = 0; i < reference.size(); ++i) {
    if (!(std::abs(other[i] - reference[i]) <= tolerance * std::abs(reference[i]))) {
      return fmt::format("{} of step {}: {:.17g} against {:.17g}", what, i, other[i], reference[i]);
    }
  }
  return {};
}

void set_recompute(config::ModelConfig& model, const std::string& text) {
  if (text.empty()) return;
  const auto words = config::split_words(text, ' ');
  if (words.at(0) == "uniform" || words.at(0) == "block") {
    model.recompute_granularity = "full";
    model.recompute_method = words[0];
    model.recompute_num_layers = std::stoll(std::string(words.at(1)));
    model.distribute_saved_activations = words.size() > 2 && words[2] == "slices";
  } else {
    model.recompute_granularity = "selective";
    model.recompute_modules.assign(words.begin(), words.end());
  }
}

void set_offload(config::ModelConfig& model, const std::string& text) {
  if (text.empty()) return;
  model.fine_grained_activation_offloading = true;
  const auto words = config::split_words(text, ' ');
  model.offload_modules.assign(words.begin(), words.end());
  model.min_offloaded_tensor_size = 64;
}

void set_latent(config::ModelConfig& m, const std::string& attention) {
  if (!attention.starts_with("latent")) return;
  m.group_query_attention = false;
  m.multi_latent_attention = true;
  m.kv_lora_rank = 10;
  m.qk_head_dim = 12;
  m.qk_pos_emb_head_dim = 4;
  m.v_head_dim = attention == "latent" ? 8 : 24;
  if (attention == "latent") return;
  m.q_lora_rank = 14;
  m.qk_layernorm = true;
  m.rotary_scaling_factor = 4.0;
  m.yarn_original_max_position_embeddings = 64;
  m.mscale_all_dim = 0.5;
}

void set_form(config::ModelConfig& m, const std::string& form) {
  if (form == "post" || form == "both") m.norm_placement = form;
  if (form == "shared-norm" || form == "own-norms") m.parallel_attention = form;
  m.pad_vocab_in_softmax = form == "padded-vocab";
  if (form == "smoothed-labels") m.label_smoothing = 0.1;
  m.apply_residual_connection_post_layernorm = form == "residual-after-norm";
  if (form == "mup") {
    m.use_mup = true;
    m.mup_base_hidden_size = 8;
    m.mup_base_head_dim = 8;
    m.mup_embedding_mult = 3.0;
  }
  if (form == "heterogeneous") {
    m.heterogeneous_layers_config_encoded_json = R"({"block_configs": [
      {"attention": {"num_query_groups": 1}, "ffn": {"ffn_hidden_size": 40}},
      {"attention": {"replace_with_linear": true}, "ffn": {"replace_with_linear": true}},
      {"attention": {"num_query_groups": 4}, "ffn": {"no_op": true}},
      {"attention": {"no_op": true}, "ffn": {"ffn_hidden_size": 56}}]})";
  }
  if (form != "gemma") return;
  m.norm_placement = "both";
  m.swiglu = false;
  m.geglu = true;
  m.embedding_multiplier = 5.5;
  m.final_logit_softcapping = 2.0;
}

// B is zero at first, which would hide what A and the magnitudes do.
void wake_adapters(training::Engine& engine) {
  if (engine.config().model.lora_rank == 0) return;
  engine.optimizer().fill([](nn::Parameter& parameter) {
    for (const nn::ShardPart& part : parameter.spec().parts) {
      if (!part.name.ends_with(".lora_b") || part.box.empty()) continue;
      tensor::fill_normal_keyed(nn::part_view(parameter.data(), part), 5, part.name, 0.3,
                                part.logical_shape, part.box.offset);
    }
  });
}

// Layers in turn as the options say and of another kind and width.
training::StageFactory factory_of(const CaseOptions& options, const config::RunConfig& config) {
  if (!options.mixed_layers) return {};
  std::vector<transformer::LayerSpec> specs = transformer::layer_specs(config.model);
  for (std::size_t layer = 1; layer < specs.size(); layer += 2) {
    transformer::MlpSpec other{.ffn_hidden_size = 40};
    if (!specs[layer].ffn.gate) other.gate = ops::Gate{};
    specs[layer].ffn = other;
  }
  return
      [&config, specs](const parallel_layers::LeafContext& leaves, const config::StagePlan& plan) {
        return std::make_unique<models::GptStage>(config.model, leaves, plan, specs);
      };
}

}  // namespace

std::string Layout::name() const {
  return fmt::format(
      "tp{}{}{} pp{}{}{} dp{}{} mbs{}{}{}{}{}{}{}{}{}{}{}", tp, sequence_parallel ? "+sp" : "",
      cp > 1 ? fmt::format(" cp{} {}", cp, cp_comm) : "", pp,
      chunks > 1 ? fmt::format(" x{}", chunks) : "", pipeline.empty() ? "" : " " + pipeline, dp,
      sharded_optimizer ? " sharded" : "", micro_batch_size,
      schedule == "1f1b" ? "" : " " + schedule, recompute.empty() ? "" : " recompute ", recompute,
      offload.empty() ? "" : " offload ", offload, strategy.empty() ? "" : " " + strategy,
      instances > 1 ? " two-level" : "", overlap_gather ? " overlap" : "",
      state_on_host ? " host" : "",
      bucket_size > 0 ? fmt::format(" buckets of {}", bucket_size) : "");
}

std::string Layout::refused() const {
  if (sequence_parallel && tp == 1) return "sequence parallel needs tp > 1";
  if (kGlobalBatch % (micro_batch_size * dp) != 0) return "global batch does not divide";
  if (sequence_parallel && kSequence / cp % tp != 0) return "rows do not divide";
  const std::int64_t micro_batches = kGlobalBatch / (micro_batch_size * dp);
  if (chunks > 1 && schedule == "1f1b" && micro_batches % pp != 0)
    return "micro-batches do not fill virtual stages";
  if (chunks > 1 && schedule.starts_with("zb-")) return "zero bubble runs one stage a rank";
  return {};
}

void set_model(config::ModelConfig& m, const CaseOptions& options) {
  m.num_layers = 4;
  m.hidden_size = 32;
  m.num_attention_heads = 4;
  m.max_position_embeddings = kSequence;
  m.seq_length = kSequence;
  m.init_method_std = 0.2;  // far from uniform attention
  m.reset_attention_mask = true;
  m.reset_position_ids = true;
  if (options.model == ModelKind::kGpt2) {
    m.hidden_dropout = options.dropout;
    m.attention_dropout = options.attention_dropout ? options.dropout : 0;
  } else {
    m.hidden_dropout = 0;
    m.attention_dropout = 0;
    m.group_query_attention = true;
    m.num_query_groups = options.num_query_groups;
    m.normalization = "RMSNorm";
    m.position_embedding_type = "rope";
    m.swiglu = true;
    m.add_bias_linear = false;
    m.untie_embeddings_and_output_weights = true;
    m.ffn_hidden_size = 48;
  }
  if (options.attention == "qk-all-heads") m.qk_norm_scope = "all-heads";
  m.qk_layernorm = options.attention == "qk-layernorm" || options.attention == "qk-all-heads";
  m.qk_l2_norm = options.attention == "qk-l2-norm";
  if (options.attention == "qk-clip") {
    m.qk_clip = true;
    m.qk_clip_threshold = 0.02;  // of models whose weights are small yet
    m.qk_clip_alpha = 0.4;
  }
  set_form(m, options.form);
  if (options.attention == "yarn") {
    m.position_embedding_type = "yarn";
    m.rotary_scaling_factor = 4.0;
    m.yarn_original_max_position_embeddings = 64;
  }
  if (options.attention == "longrope") {
    m.position_embedding_type = "longrope";
    m.longrope_short_factor = {"1", "1.25", "1.5", "2"};
    m.longrope_long_factor = {"1.5", "3", "7.5", "10"};
    m.longrope_original_max_position_embeddings = 7;  // documents have 3 to 13 tokens
  }
  if (options.attention.starts_with("alibi")) m.position_embedding_type = "alibi";
  if (options.attention == "alibi-in-bf16") {
    m.num_attention_heads = 16;  // slopes with more bits than bf16
    m.kv_channels = 4;
    m.alibi_scale = 0.5;
    m.alibi_in_bf16 = true;
  }
  if (options.attention == "relative") {
    m.position_embedding_type = "relative";
    m.relative_attention_num_buckets = 8;
    m.relative_attention_max_distance = 12;
  }
  if (options.attention == "windows") {
    m.window_size = "3,0";
    m.window_attn_skip_freq = "[1,0,1,1]";
    m.attn_logit_softcapping = 2.0;
  }
  if (options.attention == "sinks") {
    m.softmax_type = "learnable";
    m.window_size = "6,0";
  }
  m.attention_output_gate = options.attention == "gate";
  set_latent(m, options.attention);
}

config::RunConfig make_config(const CaseOptions& options, const Layout& layout) {
  config::RunConfig config;
  config::ModelConfig& m = config.model;
  set_model(m, options);
  m.make_vocab_size_divisible_by = options.vocab_divisible_by;
  config::ParallelConfig& p = config.parallel;
  p.world_size = layout.world_size();
  p.tensor_model_parallel_size = layout.tp;
  p.pipeline_model_parallel_size = layout.pp;
  p.context_parallel_size = layout.cp;
  const auto types = config::split_words(layout.cp_comm, ' ');
  m.cp_comm_type.assign(types.begin(), types.end());
  if (layout.cp_inner > 1) {
    p.hierarchical_context_parallel_sizes = {std::to_string(layout.cp_inner),
                                             std::to_string(layout.cp / layout.cp_inner)};
  }
  p.sequence_parallel = layout.sequence_parallel;
  p.use_distributed_optimizer = layout.sharded_optimizer;
  p.use_megatron_fsdp = !layout.strategy.empty();
  if (p.use_megatron_fsdp) p.data_parallel_sharding_strategy = layout.strategy;
  p.overlap_param_gather = layout.overlap_gather;
  p.num_distributed_optimizer_instances = layout.instances;
  p.ddp_bucket_size = layout.bucket_size;
  config.optimizer.optimizer_cpu_offload = layout.state_on_host;
  p.distributed_backend = "threads";
  p.pipeline_schedule = layout.schedule;
  p.pipeline_schedule_max_in_flight = layout.max_in_flight;
  if (layout.chunks > 1) p.num_virtual_stages_per_pipeline_rank = layout.chunks;
  p.pipeline_model_parallel_layout = layout.pipeline;
  set_recompute(m, layout.recompute);
  set_offload(m, layout.offload);
  config.training.precision = options.precision;
  config.training.micro_batch_size = layout.micro_batch_size;
  config.training.global_batch_size = kGlobalBatch;
  config.training.train_iters = 10;
  config.optimizer.optimizer = options.optimizer;
  config.optimizer.lr = options.optimizer == "sgd" ? 0.1 : 0.01;
  config.optimizer.adam_eps = options.adam_eps;
  config.optimizer.clip_grad = options.clip_grad;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.freeze_parameters = options.freeze;
  m.lora_rank = options.lora_rank;
  m.lora_dropout = options.lora_dropout;
  m.lora_dora = options.lora_dora;
  m.lora_target_modules = options.lora_modules;
  config::resolve(config, config::Purpose::kModel);
  config::resolve_vocab(config, kVocabulary);
  return config;
}

RankRun::RankRun(const CaseOptions& options, const Layout& layout, comm::Backend& backend,
                 const std::string& name)
    : layout_(layout),
      options_(options),
      config_(make_config(options, layout)),
      context_(backend, comm::make_grids(config_.parallel), name) {
  {
    training::Engine engine(config_, context_, options.device, factory_of(options, config_));
    wake_adapters(engine);
    outcome_.first_loss = engine.forward_backward(batches(0, engine.policy())).loss;
    outcome_.first_gradients = engine.gather_gradients();
  }
  engine_ = std::make_unique<training::Engine>(config_, context_, options.device,
                                               factory_of(options, config_));
  wake_adapters(*engine_);
  for (std::size_t i = 0; i < engine_->optimizer().num_stores(); ++i) {
    outcome_.num_buckets += engine_->optimizer().store(i).layout().buckets().size();
  }
}

std::vector<Batch> RankRun::batches(int step, const PrecisionPolicy& policy) const {
  const SourceOfRank source(options_, context_);
  const datasets::GlobalBatchPlan plan(kGlobalBatch, layout_.micro_batch_size, layout_.dp);
  std::vector<Batch> batches;
  for (std::vector<std::int64_t>& ids :
       plan.micro_batches(step * kGlobalBatch, context_.data_rank())) {
    batches.push_back(training::to_batch(datasets::make_batch(source, std::move(ids)), policy));
  }
  return batches;
}

void RankRun::train_step() {
  const auto step = static_cast<int>(outcome_.losses.size());
  const training::StepResult result = engine_->train_step(
      batches(step, engine_->policy()), config_.optimizer.lr, config_.optimizer.weight_decay);
  outcome_.losses.push_back(result.loss);
  outcome_.norms.push_back(result.grad_norm);
  if (step == 0) {
    outcome_.first_norm = result.grad_norm;
    outcome_.first_weights = engine_->gather_parameters();
  }
}

double RankRun::evaluate(std::size_t micro_batches) {
  std::vector<Batch> first = batches(0, engine_->policy());
  first.resize(micro_batches);
  return engine_->evaluate(first).loss();
}

Outcome RankRun::finish() {
  outcome_.weights = engine_->gather_parameters();
  return std::move(outcome_);
}

Outcome run_rank(const CaseOptions& options, const Layout& layout, comm::Backend& backend,
                 const std::string& name) {
  RankRun run(options, layout, backend, name);
  for (int step = 0; step < options.steps; ++step) run.train_step();
  return run.finish();
}

Outcome run_case(const CaseOptions& options, const Layout& layout,
                 const comm::testing_support::Fault* fault) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(layout.world_size()));
  comm::run_threads(
      {.world_size = layout.world_size(), .threads_per_rank = 1}, [&](comm::Backend& real) {
        std::optional<comm::testing_support::FaultyBackend> faulty;
        if (fault != nullptr) faulty.emplace(real, *fault);
        comm::Backend& backend = faulty ? static_cast<comm::Backend&>(*faulty) : real;
        outcomes[static_cast<std::size_t>(backend.rank())] = run_rank(options, layout, backend);
      });
  for (const Outcome& other : outcomes) {
    outcomes[0].num_buckets = std::min(outcomes[0].num_buckets, other.num_buckets);
  }
  return std::move(outcomes[0]);
}

std::string difference(const Outcome& reference, const Outcome& other, double first,
                       double trained) {
  for (const std::string& text :
       {compare_numbers("first loss", {reference.first_loss}, {other.first_loss}, first),
        compare_tensors("gradient of", reference.first_gradients, other.first_gradients, first),
        compare_numbers("first gradient norm", {reference.first_norm}, {other.first_norm}, first),
        compare_tensors("first weight", reference.first_weights, other.first_weights, first),
        compare_numbers("gradient norm", reference.norms, other.norms, trained),
        compare_numbers("loss", reference.losses, other.losses, trained),
        compare_tensors("weight", reference.weights, other.weights, trained)}) {
    if (!text.empty()) return text;
  }
  return {};
}

std::string difference(const Outcome& reference, const Outcome& other, double tolerance) {
  return difference(reference, other, tolerance, tolerance);
}

}  // namespace pentatron::parity
