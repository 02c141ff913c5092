// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/dry_run/traffic.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/distributed/store_plan.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/dry_run/activations.h"
#include "pentatron/training/dry_run/leaves.h"
#include "pentatron/training/dry_run/sizes.h"
#include "pentatron/transformer/recompute_plan.h"

namespace pentatron::training::dry_run {
namespace {

using config::ContextComm;
using distributed::Sharding;
using transformer::RecomputedModule;
using transformer::RecomputePlan;
using transformer::SublayerForm;

// Of `n` ranks, by a ring or pairs.
std::int64_t sent_of(Operation operation, std::int64_t bytes, std::int64_t n) {
  const std::int64_t share = bytes / n * (n - 1) + bytes % n * (n - 1) / n;
  switch (operation) {
    case Operation::kAllReduce:
      return 2 * share;
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
      return share;
    case Operation::kSend:
      break;
  }
  return bytes;
}

class StepTraffic final {
 public:
  StepTraffic(const ModelPlace& place, std::int64_t rank, std::int64_t num_micro_batches)
      : place_(place),
        run_(place.run()),
        rank_(rank),
        micro_batches_(num_micro_batches),
        rows_(micro_batch_rows(run_.config)),
        sequence_parallel_(run_.config.parallel.sequence_parallel),
        compute_(tensor::item_bytes(run_.policy.compute)) {}

  std::vector<Traffic> take() { return std::move(traffic_); }

  void stage(const config::StagePlan& stage, const nn::ParameterPlan& plan);
  void pipeline(const pipeline_parallel::ActionList& list);
  void gradients();
  void parameters();

 private:
  [[nodiscard]] std::int64_t size(const std::string& axis) const {
    return run_.grids.dense.size(axis);
  }
  [[nodiscard]] std::int64_t size(const std::vector<std::string>& axes) const {
    std::int64_t ranks = 1;
    for (const std::string& axis : axes) ranks *= size(axis);
    return ranks;
  }
  static std::string name(const std::vector<std::string>& axes) {
    return fmt::format("{}", fmt::join(axes, "-"));
  }

  // Whether no weight of a linear leaf learns.
  [[nodiscard]] bool frozen() const { return run_.config.model.lora_rank > 0; }

  // Nothing where the rank is alone.
  void add(const std::string& axis, std::int64_t ranks, const char* use, Operation operation,
           std::int64_t calls, std::int64_t bytes_each) {
    if (ranks == 1 || calls == 0) return;
    const auto same = [&](const Traffic& t) {
      return t.axis == axis && t.use == use && t.operation == operation;
    };
    auto found = std::find_if(traffic_.begin(), traffic_.end(), same);
    if (found == traffic_.end()) {
      traffic_.push_back({.axis = axis, .use = use, .operation = operation});
      found = traffic_.end() - 1;
    }
    found->calls += calls;
    found->bytes += calls * bytes_each;
    found->sent += calls * sent_of(operation, bytes_each, ranks);
  }
  // [t, h] over the tensor-parallel ranks, or of other channels.
  void add_rows(Operation operation, std::int64_t calls) {
    add_rows(operation, calls, run_.config.model.hidden_size);
  }
  void add_rows(Operation operation, std::int64_t calls, std::int64_t channels) {
    add("tp", size("tp"), "activations", operation, calls,
        product({rows_.tokens, channels, compute_}));
  }

  void pair_of_products(const LeafPair& leaves, std::int64_t forwards);
  void latent_products(std::int64_t forwards);
  void adapters(const LeafPair& leaves, std::int64_t forwards);
  void context(const transformer::LayerSpec& spec, const nn::ParameterPlan& plan, int layer,
               std::int64_t forwards);
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> travelling(const nn::ParameterPlan& plan,
                                                                 int layer) const;
  void ring(const std::string& axis, std::int64_t ranks, std::int64_t keys, std::int64_t forwards);
  void head();
  void partial_sums();

  const ModelPlace& place_;
  const RunPlan& run_;
  std::int64_t rank_;
  std::int64_t micro_batches_;
  MicroBatchRows rows_;
  bool sequence_parallel_;
  std::int64_t compute_;  // bytes an element
  std::vector<Traffic> traffic_;
};

// A product with split outputs and one with split inputs (parallel_layers/split_linear.cc), of one
// micro-batch. Rows that were saved in shares are gathered once more for the weight gradient.
void StepTraffic::pair_of_products(const LeafPair& leaves, std::int64_t forwards) {
  const std::int64_t m = micro_batches_;
  adapters(leaves, forwards);
  if (!sequence_parallel_) {
    add_rows(Operation::kAllReduce, m * (forwards + 1));
    return;
  }
  add_rows(Operation::kAllGather, m * (forwards + (frozen() ? 1 : 2)));
  add_rows(Operation::kReduceScatter, m * (forwards + 1));
}

// Of multi-latent attention (transformer/latent_heads.cc): products with split outputs of the
// latents, or of the hidden channels; the keys' rotated channels, which no product reads; and the
// product behind.
void StepTraffic::latent_products(std::int64_t forwards) {
  const config::ModelConfig& model = run_.config.model;
  const std::int64_t m = micro_batches_;
  const std::int64_t queries = model.q_lora_rank > 0 ? model.q_lora_rank : model.hidden_size;
  const std::int64_t rotated = model.qk_pos_emb_head_dim;
  const Operation sum = sequence_parallel_ ? Operation::kReduceScatter : Operation::kAllReduce;
  for (const auto& [channels, reads] :
       {std::pair{queries, 1}, {model.kv_lora_rank, 1}, {rotated, 0}}) {
    add_rows(sum, m, channels);
    if (sequence_parallel_) add_rows(Operation::kAllGather, m * (forwards + reads), channels);
  }
  add_rows(sum, m * forwards);
  if (sequence_parallel_) add_rows(Operation::kAllGather, m);
}

// What adapters send beside (parallel_layers/adapter.cc): low-rank rows on their way to B, DoRA's
// weight product of the dropped input, and lengths of rows whose columns are cut.
void StepTraffic::adapters(const LeafPair& leaves, std::int64_t forwards) {
  const config::ModelConfig& model = run_.config.model;
  const std::int64_t m = micro_batches_, tp = size("tp");
  const Operation sum = sequence_parallel_ ? Operation::kReduceScatter : Operation::kAllReduce;
  if (leaves.first.adapters > 0) {
    const std::int64_t low =
        product({rows_.tokens, leaves.first.adapters * model.lora_rank, compute_});
    if (sequence_parallel_) {
      add("tp", tp, "low-rank activations", Operation::kAllGather, m * forwards, low);
    }
    add("tp", tp, "low-rank activations", sum, m, low);
    if (model.lora_dora && model.lora_dropout > 0) {
      if (sequence_parallel_) add_rows(Operation::kAllGather, m * forwards);
      add_rows(sum, m);
    }
  }
  if (leaves.last.adapters > 0 && model.lora_dora) {
    add("tp", tp, "lengths of rows", Operation::kAllReduce, m * forwards,
        product({model.hidden_size, tensor::item_bytes(run_.policy.statistics)}));
  }
}

void StepTraffic::ring(const std::string& axis, std::int64_t ranks, std::int64_t keys,
                       std::int64_t forwards) {
  const std::int64_t sums = tensor::item_bytes(run_.policy.statistics);
  const std::int64_t m = micro_batches_;
  add(axis, ranks, "keys and values", Operation::kSend, m * (forwards + 1) * (ranks - 1),
      keys * compute_);
  // Gradients of keys travel on with them and then home, in the dtype of the sums.
  add(axis, ranks, "gradients of keys", Operation::kSend, m * ranks, keys * sums);
}

// Elements of queries, and of keys with values, which have one size there.
std::pair<std::int64_t, std::int64_t> StepTraffic::travelling(const nn::ParameterPlan& plan,
                                                              int layer) const {
  const std::string attention = "decoder.layers." + std::to_string(layer) + ".self_attention.";
  const config::ModelConfig& model = run_.config.model;
  if (model.multi_latent_attention) {
    const std::int64_t channels = std::max(model.kv_channels, model.v_head_dim);
    const std::int64_t heads =
        plan.at(attention + "linear_proj.weight").spec.local_shape.at(1) / model.v_head_dim;
    const std::int64_t q = product({rows_.tokens, heads, channels});
    return {q, 2 * q};
  }
  const auto& qkv = plan.at(attention + "linear_qkv.weight").spec.parts;
  return {product({rows_.tokens, qkv.at(0).local_rows}),
          product({rows_.tokens, 2, qkv.at(1).local_rows})};
}

void StepTraffic::context(const transformer::LayerSpec& spec, const nn::ParameterPlan& plan,
                          int layer, std::int64_t forwards) {
  const std::int64_t cp = size("cp"), m = micro_batches_, both = m * (forwards + 1);
  // Groups that follow the lengths of samples are not foreseen.
  if (cp == 1 || run_.config.parallel.dynamic_context_parallel) return;
  const auto [q, keys] = travelling(plan, layer);
  const auto exchange = [&](const std::string& axis) {
    for (const std::int64_t elements : {q + keys, q}) {
      add(axis, size(axis), "rows for heads", Operation::kAllToAll, both, elements * compute_);
    }
  };
  switch (spec.mixer.context_comm) {
    case ContextComm::kP2p:
      return ring("cp", cp, keys, forwards);
    case ContextComm::kAllGather:
      add("cp", cp, "keys and values", Operation::kAllGather, both, product({keys, cp, compute_}));
      return add("cp", cp, "gradients of keys", Operation::kReduceScatter, m,
                 product({keys, cp, compute_}));
    case ContextComm::kA2a:
      return exchange("cp");
    case ContextComm::kA2aP2p:
      if (size("cp_inner") == 1) return ring("cp", cp, keys, forwards);
      exchange("cp_inner");
      return ring("cp_outer", size("cp_outer"), keys, forwards);
  }
}

void StepTraffic::head() {
  const std::int64_t m = micro_batches_;
  if (sequence_parallel_) {
    add_rows(Operation::kAllGather, frozen() ? m : 2 * m);  // forward, and the weight gradient
    add_rows(Operation::kReduceScatter, m);
  } else {
    add_rows(Operation::kAllReduce, m);
  }
  // Maxima; sums of exponentials, the targets' logits and, for smoothed labels, sums of logits.
  const std::int64_t column = product({rows_.tokens, tensor::item_bytes(run_.policy.statistics)});
  add("tp", size("tp"), "vocabulary statistics", Operation::kAllReduce, m, column);
  add("tp", size("tp"), "vocabulary statistics", Operation::kAllReduce, m,
      (run_.config.model.label_smoothing > 0 ? 3 : 2) * column);
}

void StepTraffic::stage(const config::StagePlan& stage, const nn::ParameterPlan& plan) {
  const config::ModelConfig& model = run_.config.model;
  if (stage.embedding) {
    add_rows(sequence_parallel_ ? Operation::kReduceScatter : Operation::kAllReduce,
             micro_batches_);
    if (sequence_parallel_ && !frozen()) add_rows(Operation::kAllGather, micro_batches_);
  }
  const RecomputePlan recompute(model, stage.num_layers());
  const bool core_again = RecomputePlan::recomputes(model, RecomputedModule::kCoreAttention);
  const bool mlp_again = RecomputePlan::recomputes(model, RecomputedModule::kMlp);
  for (int begin = 0, end = 0; begin < stage.num_layers(); begin = end) {
    const int run = recompute.run_at(begin);
    end = begin + std::max(1, run);
    if (run > 0 && model.distribute_saved_activations) {
      add("tp", size("tp"), "saved activations", Operation::kAllGather, micro_batches_,
          product({rows_.local, model.hidden_size,
                   tensor::item_bytes(residual_dtype(model, run_.policy))}));
    }
    const std::int64_t forwards = run > 0 ? 2 : 1;
    for (int layer = begin; layer < end; ++layer) {
      const int number = stage.first_layer + layer;
      const transformer::LayerSpec& spec = run_.specs.at(static_cast<std::size_t>(number));
      // A linear layer in place of either leaves its outputs' split as a pair does.
      if (model.multi_latent_attention) {
        latent_products(forwards);
      } else if (spec.has_mixer()) {
        pair_of_products(mixer_leaves(model, spec), forwards);
      }
      if (spec.mixer.form == SublayerForm::kUsual) {
        context(spec, plan, number, core_again ? 2 : forwards);
      }
      const bool again = mlp_again && spec.ffn.form == SublayerForm::kUsual;
      if (spec.has_ffn()) pair_of_products(ffn_leaves(model, spec), again ? 2 : forwards);
    }
  }
  if (stage.loss) head();
}

void StepTraffic::pipeline(const pipeline_parallel::ActionList& list) {
  using pipeline_parallel::ActionKind;
  const std::int64_t bytes =
      product({rows_.local, run_.config.model.hidden_size,
               tensor::item_bytes(residual_dtype(run_.config.model, run_.policy))});
  const std::int64_t pp = size("pp");
  for (const pipeline_parallel::Action& action : list) {
    // One rank's stages hand over to each other without a message, which takes one pipeline rank.
    if (action.kind == ActionKind::kSendForward) {
      add("pp", pp, "activations", Operation::kSend, 1, bytes);
    } else if (action.kind == ActionKind::kSendBackward) {
      add("pp", pp, "activation gradients", Operation::kSend, 1, bytes);
    }
  }
}

// Summands of one bucket travel together, axis by axis; a tied weight's ends meet over the
// pipeline.
void StepTraffic::partial_sums() {
  const Sharding kept = place_.options().sharding >= Sharding::kGradients
                            ? place_.options().sharding
                            : Sharding::kNothing;
  const std::int64_t item = tensor::item_bytes(run_.policy.reduction);
  std::map<std::pair<std::size_t, std::string>, std::int64_t> summands;
  std::int64_t tied_words = 0, tied_biases = 0;
  for (const distributed::PlannedPiece& piece :
       distributed::plan_pieces(place_.layout(), kept, place_.shard_of(rank_))) {
    const nn::ShardPart& part = *piece.segment.part;
    for (const std::string& axis : part.partial_grad_axes) {
      summands[{piece.bucket, axis}] += piece.segment.length;
    }
    if (!part.tied) continue;
    const bool words = part.role == nn::ShardRole::kWordEmbedding;
    (words ? tied_words : tied_biases) += piece.segment.length;
  }
  for (const auto& [key, elements] : summands) {
    add(key.second, size(key.second), "gradients of copies", Operation::kAllReduce, 1,
        elements * item);
  }
  // The first and the last stage hold word embeddings, every stage with layers the biases that
  // layers share. What the same ranks hold travels together.
  if (size("pp") == 1) return;
  std::int64_t with_layers = 0;
  for (const config::StagePlan& stage : run_.stages) with_layers += stage.num_layers() > 0 ? 1 : 0;
  if (size("pp") == 2 && with_layers == 2) tied_words += std::exchange(tied_biases, 0);
  if (tied_words > 0) {
    add("pp", 2, "tied gradients", Operation::kAllReduce, 1, tied_words * item);
  }
  if (tied_biases > 0 && with_layers > 1) {
    add("pp", with_layers, "tied gradients", Operation::kAllReduce, 1, tied_biases * item);
  }
}

void StepTraffic::gradients() {
  partial_sums();
  const distributed::StoreOptions& options = place_.options();
  const std::int64_t item = tensor::item_bytes(run_.policy.reduction);
  const std::int64_t shards = size(options.shard_over), copies = size(options.replicate_over);
  const bool every_micro_batch = options.sharding >= Sharding::kGradients;
  if (options.sharding == Sharding::kNothing) {
    std::vector<std::string> all = options.shard_over;
    all.insert(all.end(), options.replicate_over.begin(), options.replicate_over.end());
    for (const distributed::FlatBucket& bucket : place_.layout().buckets()) {
      add(name(all), shards * copies, "gradients", Operation::kAllReduce, 1, bucket.size() * item);
    }
    return;
  }
  for (const distributed::FlatBucket& bucket : place_.layout().buckets()) {
    add(name(options.shard_over), shards, "gradients", Operation::kReduceScatter,
        every_micro_batch ? micro_batches_ : 1, bucket.size() * item);
    if (every_micro_batch) continue;
    add(name(options.replicate_over), copies, "gradients", Operation::kAllReduce, 1,
        bucket.size() / shards * item);
  }
  if (!every_micro_batch) return;
  add(name(options.replicate_over), copies, "gradients", Operation::kAllReduce, 1,
      place_.layout().num_elements() / shards * item);
}

// Whole parameters are gathered after the update. Sharded ones ahead of each unit's forward, its
// forward in backward, and its backward, which of an embedding needs no weights.
void StepTraffic::parameters() {
  const distributed::StoreOptions& options = place_.options();
  if (options.sharding == Sharding::kNothing) return;
  const std::int64_t item = tensor::item_bytes(run_.policy.parameter);
  const std::int64_t shards = size(options.shard_over);
  const config::ModelConfig& model = run_.config.model;
  std::map<int, std::int64_t> forwards;  // by layer
  for (const config::StagePlan& stage : place_.stages()) {
    const RecomputePlan recompute(model, stage.num_layers());
    for (int begin = 0, end = 0; begin < stage.num_layers(); begin = end) {
      const int run = recompute.run_at(begin);
      end = begin + std::max(1, run);
      for (int layer = begin; layer < end; ++layer) {
        forwards[stage.first_layer + layer] = run > 0 ? 2 : 1;
      }
    }
  }
  const auto has_role = [&](const distributed::FlatBucket& bucket, nn::ShardRole role) {
    return std::any_of(bucket.slots.begin(), bucket.slots.end(), [&](std::size_t slot) {
      return place_.layout().slots()[slot].parameter->spec().parts.at(0).role == role;
    });
  };
  const bool tied = !model.untie_embeddings_and_output_weights && place_.stages().size() == 1 &&
                    place_.stages()[0].embedding && place_.stages()[0].loss;
  for (const distributed::FlatBucket& bucket : place_.layout().buckets()) {
    std::int64_t calls = 1;
    if (options.sharding == Sharding::kParameters) {
      const int layer = place_.units().layers().at(static_cast<std::size_t>(bucket.units.at(0)));
      const auto found = forwards.find(layer);
      const bool embedding = layer < 0;
      calls = (found == forwards.end() ? 1 : found->second) + (embedding ? 0 : 1);
      // The head borrows the word embedding, forward and backward.
      const bool words = has_role(bucket, nn::ShardRole::kWordEmbedding);
      if (tied && words) calls += 2;
      // The other layers borrow the first one's biases, in forward alone.
      if (has_role(bucket, nn::ShardRole::kPositionTable) && layer >= 0) {
        for (const auto& [other, times] : forwards) calls += other == layer ? 0 : times;
      }
      calls *= micro_batches_;
    }
    add(name(options.shard_over), shards, "parameters", Operation::kAllGather, calls,
        bucket.size() * item);
  }
}

}  // namespace

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all-reduce";
    case Operation::kAllGather:
      return "all-gather";
    case Operation::kReduceScatter:
      return "reduce-scatter";
    case Operation::kAllToAll:
      return "all-to-all";
    case Operation::kSend:
      break;
  }
  return "send";
}

std::vector<Traffic> step_traffic(const ModelPlace& place, std::int64_t rank,
                                  const pipeline_parallel::ActionList& list,
                                  std::int64_t num_micro_batches) {
  StepTraffic traffic(place, rank, num_micro_batches);
  for (std::size_t chunk = 0; chunk < place.stages().size(); ++chunk) {
    traffic.stage(place.stages()[chunk], place.plans()[chunk]);
  }
  traffic.pipeline(list);
  traffic.gradients();
  traffic.parameters();
  return traffic.take();
}

}  // namespace pentatron::training::dry_run
