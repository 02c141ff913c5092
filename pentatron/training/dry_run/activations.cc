// SPDX-License-Identifier: Apache-2.0
// Shapes: t rows of this rank, r of them between the leaves (sequence parallelism), h hidden
// channels, q channels of this rank's queries, kv of its keys and of its values, f feed-forward
// channels, n heads.
#include "pentatron/training/dry_run/activations.h"

#include <algorithm>
#include <bit>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/config/choices.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/parallel_layers/vocab_head.h"
#include "pentatron/tensor/fp8_blockwise.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/dry_run/leaves.h"
#include "pentatron/training/dry_run/sizes.h"
#include "pentatron/training/run_policy.h"
#include "pentatron/transformer/offload_plan.h"
#include "pentatron/transformer/recompute_plan.h"

namespace pentatron::training::dry_run {
namespace {

using config::ContextComm;
using transformer::LayerSpec;
using transformer::OffloadedModule;
using transformer::OffloadPlan;
using transformer::RecomputedModule;
using transformer::RecomputePlan;
using transformer::SublayerForm;

// What a layer's tensors have on this rank.
struct Widths {
  std::int64_t q = 0, kv = 0, gate = 0;
  std::int64_t values = 0;  // of the core's output
  // Of multi-latent attention: outputs of linear_kv_up_proj, and the latents.
  std::int64_t up = 0, q_latent = 0, kv_latent = 0;
  std::int64_t fc1 = 0, fc2 = 0;  // outputs of the first, inputs of the second product
};

Widths widths_of(const nn::ParameterPlan& plan, int layer) {
  const std::string prefix = "decoder.layers." + std::to_string(layer) + ".";
  Widths w;
  if (const auto* planned = plan.find(prefix + "self_attention.linear_qkv.weight")) {
    const auto& qkv = planned->spec.parts;
    w = {.q = qkv.at(0).local_rows,
         .kv = qkv.at(1).local_rows,
         .gate = qkv.size() > 3 ? qkv[3].local_rows : 0,
         .values = qkv.at(0).local_rows};
  }
  if (const auto* up = plan.find(prefix + "self_attention.linear_kv_up_proj.weight")) {
    const auto* q_up = plan.find(prefix + "self_attention.linear_q_up_proj.weight");
    const auto& queries =
        q_up != nullptr ? *q_up : plan.at(prefix + "self_attention.linear_q_proj.weight");
    w = {.q = queries.spec.local_shape.at(0),
         .kv = queries.spec.local_shape.at(0),
         .values = plan.at(prefix + "self_attention.linear_proj.weight").spec.local_shape.at(1),
         .up = up->spec.local_shape.at(0),
         .q_latent = q_up != nullptr ? q_up->spec.local_shape.at(1) : 0,
         .kv_latent = up->spec.local_shape.at(1)};
  }
  if (const auto* fc1 = plan.find(prefix + "mlp.linear_fc1.weight")) {
    w.fc1 = fc1->spec.local_shape.at(0);
    w.fc2 = plan.at(prefix + "mlp.linear_fc2.weight").spec.local_shape.at(1);
  }
  return w;
}

// Of one layer, its input among them.
struct LayerBytes {
  std::int64_t kept = 0;
  std::int64_t rebuilt = 0;  // of modules that backward makes again
  std::int64_t work = 0;     // of the widest op of backward
};

// What waits for backward in host memory.
struct MovedBytes {
  std::int64_t device = 0;  // that it frees there
  std::int64_t copied = 0;
  std::int64_t host = 0;  // the blocks that hold it
};

class StageFormula final {
 public:
  explicit StageFormula(const config::RunConfig& config)
      : model_(config.model),
        rows_(micro_batch_rows(config)),
        context_size_(config.parallel.context_parallel_size),
        saves_(config.model.distribute_saved_activations
                   ? config.parallel.tensor_model_parallel_size
                   : 1),
        norms_again_(RecomputePlan::recomputes(model_, RecomputedModule::kLayerNorm)),
        inner_context_(config::context_hierarchy(config.parallel).inner) {
    const PrecisionPolicy policy = run_policy(config);
    compute_ = tensor::item_bytes(policy.compute);
    logits_dtype_ = policy.logits;
    logits_are_wider_ = policy.logits != policy.compute;
    fp8_head_ = model_.fp8_output_proj;
    blockwise_ =
        !model_.fp8.empty() && config::fp8_scaling(model_) == config::Fp8Scaling::kBlockwise;
    residual_ = tensor::item_bytes(residual_dtype(model_, policy));
    statistics_ = tensor::item_bytes(ops::compute_dtype(policy.compute, policy.statistics));
    logits_ = tensor::item_bytes(policy.logits);
  }

  // Every unit hands its gradient on (ops/unit_events.h), so a layer's input has one even where no
  // weight before it learns.
  [[nodiscard]] LayerBytes layer(const LayerSpec& spec, const Widths& w) const {
    LayerBytes bytes;
    // The gradient of the feed-forward's inner channels beside the stream's, when what the second
    // product saved is gone; without one, those of the packed heads.
    const std::int64_t heads = w.up > 0 ? w.q + w.kv + w.values + w.up : w.q + 2 * w.kv;
    bytes.work = residual() + of_rows(std::max(w.fc1, heads));
    if (norms_again_ && spec.norms_inputs) bytes.rebuilt = hidden();
    if (spec.has_mixer()) add_mixer(bytes, spec, w);
    if (spec.has_ffn()) add_ffn(bytes, spec, w);
    return bytes;
  }

  // Of what layer() counts as kept; `at`: the layer's place in the stage.
  [[nodiscard]] MovedBytes moved(const OffloadPlan& plan, int at, const LayerSpec& spec,
                                 const Widths& w) const {
    MovedBytes bytes;
    const auto goes = [&](OffloadedModule module) { return plan.offloads(at, module); };
    const bool own_middle = spec.has_ffn() && !spec.shared_norm;
    // Norms save their inputs; of parallel halves both the same.
    bool input = spec.has_mixer() && goes(OffloadedModule::kAttnNorm);
    if (own_middle && spec.norms_inputs && goes(OffloadedModule::kMlpNorm)) {
      if (spec.parallel) {
        input = true;
      } else {
        move(bytes, residual(), residual_);
      }
    }
    if (input && spec.norms_inputs) move(bytes, residual(), residual_);
    if (spec.norms_outputs && spec.has_mixer() && goes(OffloadedModule::kAttnNorm)) {
      move(bytes, hidden(), compute_);
    }
    if (spec.norms_outputs && spec.has_ffn() && goes(OffloadedModule::kMlpNorm)) {
      move(bytes, hidden(), compute_);
    }
    if (spec.has_mixer() && spec.mixer.form != SublayerForm::kLinear) {
      move_attention(bytes, plan, at, spec, w);
    }
    return bytes;
  }

  // Final norm and its input.
  [[nodiscard]] std::int64_t head() const {
    return residual() + row_statistics(rows_.local) + (adapts() ? 0 : hidden());
  }
  // `columns`: of the vocabulary on this rank. The loss keeps a log-sum-exp for each row, and its
  // logits where they are made at once.
  [[nodiscard]] std::int64_t logits(std::int64_t columns) const {
    const std::int64_t sums = product({rows_.tokens, statistics_});
    return logits_at_once(columns) ? product({rows_.tokens, columns, logits_}) + sums : sums;
  }
  // Beside what the loss saved: the gradient of its input, fp8 forms of the logits' gradient, and
  // the rows in which products of two dtypes go.
  [[nodiscard]] std::int64_t head_work(std::int64_t columns) const {
    constexpr std::int64_t kRowBlocks = 16;
    std::int64_t bytes = of_rows(model_.hidden_size);
    if (fp8_head_) bytes += 2 * fp8_of_rows(columns);
    if (logits_are_wider_) bytes += of_rows(columns) / kRowBlocks;
    if (!logits_at_once(columns)) {
      bytes += product({rows_at_once(columns) * (rows_.tokens / rows_.local), columns, logits_});
    }
    return bytes;
  }
  // What a run of recomputed layers keeps.
  [[nodiscard]] std::int64_t run_input() const { return (residual() + saves_ - 1) / saves_; }
  // [r, h] as it runs from layer to layer.
  [[nodiscard]] std::int64_t residual() const {
    return product({rows_.local, model_.hidden_size, residual_});
  }

  [[nodiscard]] bool adapts() const { return model_.lora_rank > 0; }
  // What the adapters of a leaf save beside the input: what B reads, and for DoRA's lengths their
  // products and the weight's.
  [[nodiscard]] std::int64_t of_adapters(const Leaf& leaf, std::int64_t outputs) const {
    if (leaf.adapters == 0) return 0;
    return of_rows(leaf.adapters * model_.lora_rank) +
           (model_.lora_dora ? 2 * of_rows(outputs) : 0);
  }
  // Of a leaf whose input another op saves too: a dropped one is a tensor of its own.
  [[nodiscard]] std::int64_t dropped_input(const Leaf& leaf, std::int64_t bytes) const {
    return leaf.adapters > 0 && model_.lora_dropout > 0 ? bytes : 0;
  }

  // One activation; small ones stay. `bytes`: what it frees, as large as itself.
  bool move(MovedBytes& moved, std::int64_t bytes, std::int64_t item) const {
    if (!copy_to_host(moved, bytes, item)) return false;
    moved.device += bytes;
    return true;
  }
  // One whose memory somebody else holds too.
  bool copy_to_host(MovedBytes& moved, std::int64_t bytes, std::int64_t item) const {
    if (bytes == 0 || bytes / item < model_.min_offloaded_tensor_size) return false;
    moved.copied += bytes;
    moved.host += static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
    return true;
  }
  void move_attention(MovedBytes& bytes, const OffloadPlan& plan, int at, const LayerSpec& spec,
                      const Widths& w) const {
    const LeafPair leaves = mixer_leaves(model_, spec);
    const bool fp8 = spec.recipe.numbers == Numbers::kFp8;
    if (plan.offloads(at, OffloadedModule::kQkvLinear) && leaves.first.learns) {
      const std::int64_t read = read_of_norm(spec);
      move(bytes, read, read == hidden() ? compute_ : 1);
      for (const std::int64_t latent : {w.q_latent, w.kv_latent}) {
        for (int of = model_.qk_layernorm ? 2 : 1; of > 0 && latent > 0; --of) {
          move(bytes, of_local_rows(latent), compute_);
        }
      }
    }
    const std::int64_t values = of_rows(w.values);
    const bool core = plan.offloads(at, OffloadedModule::kCoreAttn);
    const bool again = RecomputePlan::recomputes(model_, RecomputedModule::kCoreAttention);
    if (core && w.up > 0) move_latent_core(bytes, spec, w, again);
    if (core && w.up == 0) move_core(bytes, spec, w, again);
    // The projection reads what the core gives, and shares it with the core where that saves it.
    const bool shares = w.gate == 0 && !fp8 && !exchanges(spec) && !cuts_values(w);
    if (plan.offloads(at, OffloadedModule::kAttnProj) && leaves.last.learns) {
      if (fp8) {
        move(bytes, fp8_of_rows(w.q), 1);
      } else if (!shares || again || !core) {
        move(bytes, values, compute_);
      }
    }
  }
  void move_latent_core(MovedBytes& bytes, const LayerSpec& spec, const Widths& w,
                        bool again) const {
    const bool here = again || context_size_ == 1;
    const std::int64_t q = here ? of_rows(w.q) : of_rows(travelling(w));
    move(bytes, q, compute_);
    if (here) {
      move(bytes, q, compute_);
      // Views of the product, which goes with them.
      if (copy_to_host(bytes, of_rows(w.values), compute_)) bytes.device += of_rows(w.up);
    } else if (exchanges(spec)) {
      move(bytes, q, compute_);
      move(bytes, q, compute_);
      if (spec.mixer.context_comm == ContextComm::kA2aP2p) move(bytes, 2 * q, compute_);
    } else {
      move(bytes, 2 * q, compute_);
    }
    if (!again) move(bytes, here ? of_rows(w.values) : q, compute_);
  }
  // Channels of this rank's heads where those of keys and values travel as one tensor.
  [[nodiscard]] std::int64_t travelling(const Widths& w) const { return std::max(w.q, w.values); }
  // Whether the core's output is a part of what it makes.
  [[nodiscard]] bool cuts_values(const Widths& w) const {
    return context_size_ > 1 && w.values < w.q;
  }
  // Queries, keys, values and the output. Of the packed product nothing is left where all its views
  // have gone and neither norms of heads nor a gate hold it.
  void move_core(MovedBytes& bytes, const LayerSpec& spec, const Widths& w, bool again) const {
    const bool normed = model_.qk_layernorm || model_.qk_l2_norm;
    const bool fresh = spec.mixer.rotary || normed;
    const std::int64_t q = of_rows(w.q), kv = of_rows(w.kv);
    bool views_go = true;
    const auto view = [&](std::int64_t of) {
      views_go = copy_to_host(bytes, of, compute_) && views_go;
    };
    const auto queries_or_keys = [&](std::int64_t of) {
      if (fresh) {
        move(bytes, of, compute_);
      } else {
        view(of);
      }
    };
    bool packed = true;  // something shows it
    if (again || context_size_ == 1) {
      queries_or_keys(q);
      queries_or_keys(kv);
      view(kv);
    } else if (exchanges(spec)) {
      packed = false;
      move(bytes, q, compute_);
      move(bytes, kv, compute_);
      move(bytes, kv, compute_);
      if (spec.mixer.context_comm == ContextComm::kA2aP2p) move(bytes, 2 * kv, compute_);
    } else {
      packed = !fresh;
      queries_or_keys(q);
      move(bytes, 2 * kv, compute_);
    }
    if (packed && views_go && !normed && w.gate == 0) bytes.device += q + 2 * kv;
    if (!again) move(bytes, q, compute_);
  }
  [[nodiscard]] bool exchanges(const LayerSpec& spec) const {
    if (context_size_ == 1) return false;
    return spec.mixer.context_comm == ContextComm::kA2a ||
           (spec.mixer.context_comm == ContextComm::kA2aP2p && inner_context_ > 1);
  }

  void add_mixer(LayerBytes& bytes, const LayerSpec& spec, const Widths& w) const {
    const LeafPair leaves = mixer_leaves(model_, spec);
    // The norm saves what comes in, the projection what the norm gives.
    if (spec.norms_inputs) bytes.kept += residual() + row_statistics(rows_.local);
    if (leaves.first.learns) bytes.kept += read_of_norm(spec);
    if (spec.norms_outputs) bytes.kept += hidden() + row_statistics(rows_.local);
    if (spec.mixer.form == SublayerForm::kLinear) return;
    bytes.kept += of_adapters(leaves.first, w.q + 2 * w.kv + w.gate) +
                  of_adapters(leaves.last, model_.hidden_size);
    if (!RecomputePlan::recomputes(model_, RecomputedModule::kCoreAttention)) {
      bytes.kept += attention(spec, w, leaves.last, false);
      return;
    }
    const std::int64_t kept = attention(spec, w, leaves.last, /*again=*/true);
    bytes.rebuilt = std::max(bytes.rebuilt, attention(spec, w, leaves.last, false) - kept);
    bytes.kept += kept;
  }
  void add_ffn(LayerBytes& bytes, const LayerSpec& spec, const Widths& w) const {
    const LeafPair leaves = ffn_leaves(model_, spec);
    const bool again = RecomputePlan::recomputes(model_, RecomputedModule::kMlp) &&
                       spec.ffn.form != SublayerForm::kLinear;
    bytes.kept += mlp_input(spec, leaves.first.learns || again);
    if (spec.shared_norm) bytes.kept += dropped_input(leaves.first, hidden());
    // Of a linear layer: nothing.
    const bool fp8 = spec.recipe.numbers == Numbers::kFp8;
    const std::int64_t last = fp8 ? fp8_of_rows(w.fc2) : of_rows(w.fc2);
    const std::int64_t inner = of_adapters(leaves.first, w.fc1) + of_rows(w.fc1) +
                               of_adapters(leaves.last, model_.hidden_size) +
                               (leaves.last.learns ? last : 0);
    if (again) {
      bytes.rebuilt = std::max(bytes.rebuilt, inner);
    } else {
      bytes.kept += inner;
    }
    if (spec.norms_outputs) bytes.kept += hidden() + row_statistics(rows_.local);
  }
  // What products save of what they read: a norm's output, which may be made again, or the input.
  [[nodiscard]] std::int64_t read_of_norm(const LayerSpec& spec) const {
    return spec.norms_inputs && norms_again_ ? 0 : projected(spec, hidden());
  }
  // [r, h] and [t, channels] as products read them.
  [[nodiscard]] std::int64_t hidden() const {
    return product({rows_.local, model_.hidden_size, compute_});
  }
  [[nodiscard]] std::int64_t of_rows(std::int64_t channels) const {
    return product({rows_.tokens, channels, compute_});
  }
  [[nodiscard]] std::int64_t of_local_rows(std::int64_t channels) const {
    return product({rows_.local, channels, compute_});
  }
  // In fp8, whose products take whole blocks of rows, with what their scales take.
  [[nodiscard]] std::int64_t fp8_of_rows(std::int64_t channels) const {
    const std::int64_t blocks = (rows_.tokens + tensor::kFp8Step - 1) / tensor::kFp8Step;
    const std::int64_t scales = (rows_.tokens + tensor::kFp8Block - 1) / tensor::kFp8Block;
    return product({blocks, tensor::kFp8Step, channels}) +
           (blockwise_ ? product({scales, channels, sizeof(float)}) : 0);
  }
  // `wide`: bytes of the hidden channels that a product saves as its input; with fp8 it saves that
  // form alone, but for shared rows, which are gathered again.
  [[nodiscard]] std::int64_t projected(const LayerSpec& spec, std::int64_t wide) const {
    const bool shares_rows = rows_.local != rows_.tokens;
    const bool fp8 = spec.recipe.numbers == Numbers::kFp8 && !shares_rows;
    return fp8 ? fp8_of_rows(model_.hidden_size) : wide;
  }
  // A LayerNorm saves mean and deviation, the others a factor.
  [[nodiscard]] std::int64_t row_statistics(std::int64_t rows) const {
    return product(
        {rows, config::norm_kind(model_) == config::NormKind::kLayerNorm ? 2 : 1, statistics_});
  }
  [[nodiscard]] std::int64_t head_norms(const Widths& w) const {
    const bool all_heads =
        model_.qk_layernorm && config::qk_norm_scope(model_) == config::QkNormScope::kAllHeads;
    const std::int64_t heads = all_heads ? 2 : (w.q + w.kv) / model_.kv_channels;
    const std::int64_t rows = rows_.tokens * heads;
    return model_.qk_l2_norm ? product({rows, statistics_}) : row_statistics(rows);
  }

  // Of multi-latent attention, likewise: the latents as well, which norms read and products save.
  [[nodiscard]] std::int64_t latent_attention(const LayerSpec& spec, const Widths& w,
                                              bool again) const {
    std::int64_t bytes = 0;
    for (const std::int64_t latent : {w.q_latent, w.kv_latent}) {
      if (latent == 0) continue;
      const bool normed = model_.qk_layernorm;
      if (normed) bytes += of_local_rows(latent) + row_statistics(rows_.local);
      if (!normed || !norms_again_) bytes += of_local_rows(latent);
    }
    const std::int64_t sums = product({rows_.tokens, w.q / model_.kv_channels, statistics_});
    if (again || context_size_ == 1) {
      // Queries and keys are put together; the values are a view.
      return bytes + of_rows(w.q + w.kv + w.up + w.values) + (again ? 0 : sums);
    }
    const std::int64_t wide = of_rows(travelling(w));
    bytes += 3 * wide + wide + sums;  // queries, keys and values; the output
    if (cuts_values(w)) {
      bytes += of_rows(w.values);
    } else if (exchanges(spec)) {
      bytes += wide;  // on its way back
    }
    const bool rings = exchanges(spec) && spec.mixer.context_comm == ContextComm::kA2aP2p;
    return rings ? bytes + 2 * wide : bytes;
  }

  // Behind the projection of queries, keys and values, up to the output projection's input. Views
  // keep the fused product alive as a whole. `again`: the core is made again in backward.
  [[nodiscard]] std::int64_t attention(const LayerSpec& spec, const Widths& w, const Leaf& out,
                                       bool again) const {
    if (w.up > 0) return latent_attention(spec, w, again);
    const bool normed = model_.qk_layernorm || model_.qk_l2_norm;
    const bool fresh = spec.mixer.rotary || normed;  // queries and keys are tensors of their own
    const std::int64_t q = of_rows(w.q), kv = of_rows(w.kv);
    const std::int64_t sums = product({rows_.tokens, w.q / model_.kv_channels, statistics_});
    bool fused = normed || w.gate > 0;
    std::int64_t bytes = normed ? head_norms(w) : 0;
    // The projection `out` reads what the gate lets through, or what the core gives (below). Its
    // input in fp8 is saved beside what attention or the gate saves; where the core is made again,
    // instead of it.
    const bool fp8 = spec.recipe.numbers == Numbers::kFp8 && out.learns;
    if (fp8) bytes += fp8_of_rows(w.q) - (again ? q : 0);
    if (w.gate > 0 && out.learns && !fp8) bytes += q;
    if (w.gate == 0 && !again) bytes += dropped_input(out, q);
    if (w.gate == 0 && again && !out.learns) bytes -= q;
    if (config::position_kind(model_) == config::PositionKind::kRelative && !again) {
      bytes += product(
          {w.q / model_.kv_channels, 2 * model_.relative_attention_max_distance + 1, statistics_});
    }
    if (again || context_size_ == 1) {
      fused = true;  // the values are a view
      bytes += q + (fresh ? q + kv : 0) + (again ? 0 : sums);
    } else if (exchanges(spec)) {
      // With the rows of all, and the output's way back.
      bytes += q + 2 * kv + 2 * q + sums;
      if (spec.mixer.context_comm == ContextComm::kA2aP2p) bytes += 2 * kv;
    } else {
      fused = fused || !fresh;
      bytes += 2 * kv + (fresh ? q : 0) + q + sums;
    }
    return bytes + (fused ? q + 2 * kv + of_rows(w.gate) : 0);
  }

  // What the feed-forward's first product and the norm before it save. `saved`: the product, or
  // what runs it again, saves what it reads.
  [[nodiscard]] std::int64_t mlp_input(const LayerSpec& spec, bool saved) const {
    if (spec.shared_norm) return 0;
    const std::int64_t middle = spec.parallel ? 0 : residual();
    const std::int64_t input = saved ? (spec.norms_inputs ? read_of_norm(spec) : hidden()) : 0;
    if (spec.norms_inputs) return middle + row_statistics(rows_.local) + input;
    return spec.parallel && residual_ == compute_ ? 0 : input;
  }

  [[nodiscard]] std::int64_t rows_at_once(std::int64_t columns) const {
    return parallel_layers::LogitMemory{}.rows_at_once(rows_.local, rows_.tokens, columns,
                                                       logits_dtype_);
  }
  [[nodiscard]] bool logits_at_once(std::int64_t columns) const {
    return fp8_head_ || rows_at_once(columns) == rows_.local;
  }

  const config::ModelConfig& model_;
  MicroBatchRows rows_;
  std::int64_t context_size_;
  std::int64_t saves_;  // ranks that share what a run of recomputed layers keeps
  bool norms_again_;
  std::int64_t inner_context_;
  std::int64_t compute_ = 0, residual_ = 0, statistics_ = 0, logits_ = 0;  // bytes an element
  DType logits_dtype_ = DType::Undefined;
  bool logits_are_wider_ = false;
  bool fp8_head_ = false;
  bool blockwise_ = false;  // scales of fp8
};

}  // namespace

MicroBatchRows micro_batch_rows(const config::RunConfig& config) {
  const config::ParallelConfig& p = config.parallel;
  const std::int64_t tokens = p.dynamic_context_parallel
                                  ? p.max_seqlen_per_dp_cp_rank
                                  : product({config.training.micro_batch_size,
                                             config.model.seq_length / p.context_parallel_size});
  if (!p.sequence_parallel) return {tokens, tokens};
  PENTATRON_CHECK(tokens % p.tensor_model_parallel_size == 0, kConfig,
                  "--sequence-parallel cannot share {} tokens of a micro-batch evenly over "
                  "--tensor-model-parallel-size {}; change --seq-length or --micro-batch-size, or "
                  "leave out --sequence-parallel",
                  tokens, p.tensor_model_parallel_size);
  return {tokens, tokens / p.tensor_model_parallel_size};
}

DType residual_dtype(const config::ModelConfig& model, const PrecisionPolicy& policy) {
  return model.fp32_residual_connection ? policy.statistics : policy.compute;
}

StageActivations stage_activations(const config::RunConfig& config, const config::StagePlan& stage,
                                   const nn::ParameterPlan& plan,
                                   const std::vector<LayerSpec>& specs) {
  const StageFormula formula(config);
  const RecomputePlan recompute(config.model, stage.num_layers());
  const OffloadPlan offload(config.model, stage.num_layers());
  StageActivations bytes;
  for (int begin = 0, end = 0; begin < stage.num_layers(); begin = end) {
    const int run = recompute.run_at(begin);
    end = begin + std::max(1, run);
    std::int64_t of_run = 0;
    const std::int64_t moved_before = bytes.lingering;
    for (int layer = begin; layer < end; ++layer) {
      const int number = stage.first_layer + layer;
      const LayerSpec& spec = specs.at(static_cast<std::size_t>(number));
      const Widths widths = widths_of(plan, number);
      const LayerBytes one = formula.layer(spec, widths);
      of_run += one.kept;
      bytes.lingering = 0;
      if (run == 0) {
        const MovedBytes moved = formula.moved(offload, layer, spec, widths);
        of_run -= moved.device;
        bytes.on_host += moved.host;
        bytes.moving = std::max(bytes.moving, moved.copied + moved_before);
        bytes.lingering = moved.copied;
      }
      bytes.rebuilt = std::max(bytes.rebuilt, one.rebuilt);
      bytes.layer_work = std::max(bytes.layer_work, one.work);
    }
    bytes.layers += run > 0 ? formula.run_input() : of_run;
    if (run > 0) bytes.rebuilt = std::max(bytes.rebuilt, of_run - formula.residual());
  }
  if (stage.loss) {
    const nn::PlannedParameter* head = plan.find("output_layer.weight");
    if (head == nullptr) head = &plan.at("embedding.word_embeddings.weight");
    bytes.head = formula.head();
    bytes.layers += bytes.head;
    bytes.logits = formula.logits(head->spec.local_shape.at(0));
    bytes.head_work = formula.head_work(head->spec.local_shape.at(0));
  }
  return bytes;
}

StageActivations peak_activations(const pipeline_parallel::ActionList& list,
                                  const std::vector<StageActivations>& chunks) {
  using pipeline_parallel::ActionKind;
  const bool splits = std::any_of(list.begin(), list.end(), [](const auto& action) {
    return action.kind == ActionKind::kBackwardWeight;
  });
  const ActionKind last = splits ? ActionKind::kBackwardWeight : ActionKind::kBackward;
  StageActivations now, peak;
  std::int64_t most_on_host = 0;
  const auto total = [](const StageActivations& a) {
    return a.layers + a.logits + a.rebuilt + a.moving + a.work;
  };
  const auto meet = [&](const StageActivations& moment) {
    if (total(moment) > total(peak)) peak = moment;
  };
  for (const pipeline_parallel::Action& action : list) {
    const StageActivations& chunk = chunks.at(static_cast<std::size_t>(action.chunk));
    if (action.kind == ActionKind::kForward) {
      now.layers += chunk.layers;
      now.logits += chunk.logits;
      now.on_host += chunk.on_host;
      most_on_host = std::max(most_on_host, now.on_host);
    }
    StageActivations moment = now;
    moment.moving = chunk.lingering;
    meet(moment);
    if (action.kind == ActionKind::kBackward) {
      moment.work = chunk.head_work;
      meet(moment);
      moment.layers -= chunk.head;
      moment.logits -= chunk.logits;
      moment.rebuilt = chunk.rebuilt;
      moment.moving = chunk.moving;
      moment.work = chunk.layer_work;
      meet(moment);
    }
    if (action.kind == last) {
      now.layers -= chunk.layers;
      now.logits -= chunk.logits;
      now.on_host -= chunk.on_host;
    }
  }
  peak.on_host = most_on_host;
  return peak;
}

}  // namespace pentatron::training::dry_run
