// SPDX-License-Identifier: Apache-2.0
#include "pentatron/models/gpt/sharding.h"

#include <cmath>
#include <string>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::models {
namespace {

using config::ModelConfig;
using parallel_layers::Cut;
using parallel_layers::FewerUnits;
using parallel_layers::lay_out;
using parallel_layers::PartRule;
using parallel_layers::TensorLayout;

struct PartCut {
  std::string suffix;  // empty: the weight is one part
  std::int64_t rows = 0;
  Cut cut = {};              // none: whole on every rank
  bool cut_columns = false;  // through the inputs instead of the outputs
};

// One leaf. columns 0: a norm, whose weight starts at one.
struct LeafRule {
  std::string name;
  std::vector<PartCut> parts;
  std::int64_t columns = 0;
  bool bias;
  double std;
  std::int64_t padded_rows = 0;
  nn::ShardRole role = nn::ShardRole::kMatrix;  // of the weight
};

// The table. Sizes of parts are output rows; what is cut are heads, groups, channels and vocabulary
// rows over the tensor-parallel ranks.
struct GptTable {
  // With layers of this kind.
  GptTable(const ModelConfig& c, const transformer::MlpSpec& mlp)
      : hidden(c.hidden_size),
        norm_bias(c.normalization == "LayerNorm"),
        bias(c.add_bias_linear),
        std(c.init_method_std),
        output_std(c.init_method_std / std::sqrt(2.0 * static_cast<double>(c.num_layers))) {
    const std::int64_t q = c.num_attention_heads * c.kv_channels;
    const std::int64_t kv = c.num_query_groups * c.kv_channels;
    const std::int64_t f = mlp.ffn_hidden_size;
    const Cut heads{
        .axis = "tp", .units = c.num_attention_heads, .option = "--num-attention-heads"};
    const Cut groups{.axis = "tp",
                     .units = c.num_query_groups,
                     .option = "--num-query-groups",
                     .fewer = FewerUnits::kCopy};
    const Cut channels{.axis = "tp", .units = f, .option = "--ffn-hidden-size"};
    const Cut vocabulary{
        .axis = "tp", .units = c.padded_vocab_size, .option = "--padded-vocab-size"};
    const std::vector<PartCut> fc1 =
        mlp.activation == transformer::Activation::kSwiglu
            ? std::vector<PartCut>{{"gate", f, channels}, {"up", f, channels}}
            : std::vector<PartCut>{{"", f, channels}};
    word = {"embedding.word_embeddings", {{"", c.vocab_size, vocabulary}}, hidden, false, std,
            c.padded_vocab_size,         nn::ShardRole::kWordEmbedding};
    position = {
        "embedding.position_embeddings", {{"", c.max_position_embeddings}}, hidden, false, std};
    layer = {
        norm("input_layernorm"),
        {"self_attention.linear_qkv",
         {{"q", q, heads}, {"k", kv, groups}, {"v", kv, groups}},
         hidden,
         bias || c.add_qkv_bias,
         std,
         0,
         nn::ShardRole::kQkv},
        {"self_attention.linear_proj", {{"", hidden, heads, true}}, q, bias, output_std},
        norm("pre_mlp_layernorm"),
        {"mlp.linear_fc1", fc1, hidden, bias, std},
        {"mlp.linear_fc2", {{"", hidden, channels, true}}, f, bias, output_std},
    };
    final_norm = norm("decoder.final_layernorm");
    output = {"output_layer",
              {{"", c.vocab_size, vocabulary}},
              hidden,
              false,
              std,
              c.padded_vocab_size,
              nn::ShardRole::kOutput};
  }

  [[nodiscard]] LeafRule norm(std::string name) const {
    return {std::move(name), {{"", hidden}}, 0, norm_bias, 0.0};
  }

  std::int64_t hidden;
  bool norm_bias;
  bool bias;
  double std;
  double output_std;
  LeafRule word;
  LeafRule position;
  std::vector<LeafRule> layer;
  LeafRule final_norm;
  LeafRule output;
};

void add_leaf(nn::ParameterPlan& plan, const LeafRule& rule, const std::string& prefix, int number,
              const TensorLayout& layout) {
  const std::string leaf = prefix + rule.name;
  const auto part_name = [&](const PartCut& part, const char* kind) {
    return leaf + (part.suffix.empty() ? "" : "." + part.suffix) + kind;
  };
  std::vector<PartRule> weights;
  std::vector<PartRule> biases;
  for (const PartCut& part : rule.parts) {
    const nn::InitSpec init = rule.columns == 0 ? nn::InitSpec{nn::InitKind::kOnes, 0.0}
                                                : nn::InitSpec{nn::InitKind::kNormal, rule.std};
    weights.push_back({.name = part_name(part, ".weight"),
                       .rows = part.rows,
                       .columns = rule.columns,
                       .cut = part.cut,
                       .cut_columns = part.cut_columns,
                       .init = init,
                       .padded_rows = rule.padded_rows});
    // A bias follows the output: split with the rows, whole where only the input is split.
    biases.push_back({.name = part_name(part, ".bias"),
                      .rows = part.rows,
                      .cut = part.cut_columns ? Cut{} : part.cut,
                      .init = {nn::InitKind::kZeros, 0.0}});
  }
  nn::ShardSpec spec = lay_out(weights, layout);
  if (rule.columns > 0) {
    for (nn::ShardPart& part : spec.parts) part.role = rule.role;
  }
  plan.add({leaf + ".weight", std::move(spec), number});
  if (rule.bias) plan.add({leaf + ".bias", lay_out(biases, layout), number});
}

// The embedding's weight once more, on the last stage, as the output layer's: one name, and only
// the first stage's copy counts.
void add_tied_word_embedding(nn::ParameterPlan& plan, const LeafRule& rule, int number,
                             const TensorLayout& layout, bool counts) {
  nn::ParameterPlan single;
  add_leaf(single, rule, "", number, layout);
  nn::PlannedParameter parameter = single.parameters().at(0);
  for (nn::ShardPart& part : parameter.spec.parts) {
    part.tied = true;
    part.replica = counts ? 0 : 1;
  }
  plan.add(std::move(parameter));
}

void check_positive(std::int64_t value, const char* option) {
  PENTATRON_CHECK(value > 0, kConfig, "{} must be positive, not {}", option, value);
}

void check_config(const ModelConfig& c) {
  check_positive(c.num_layers, "--num-layers");
  check_positive(c.hidden_size, "--hidden-size");
  check_positive(c.ffn_hidden_size, "--ffn-hidden-size");
  check_positive(c.num_attention_heads, "--num-attention-heads");
  check_positive(c.num_query_groups, "--num-query-groups");
  check_positive(c.kv_channels, "--kv-channels");
  check_positive(c.max_position_embeddings, "--max-position-embeddings");
  check_positive(c.vocab_size, "--vocab-size");
  PENTATRON_CHECK(c.num_attention_heads % c.num_query_groups == 0, kConfig,
                  "--num-attention-heads {} does not divide by --num-query-groups {}",
                  c.num_attention_heads, c.num_query_groups);
  PENTATRON_CHECK(c.normalization == "LayerNorm" || c.normalization == "RMSNorm", kConfig,
                  "--normalization must be LayerNorm or RMSNorm, not '{}'", c.normalization);
  PENTATRON_CHECK(c.position_embedding_type == "learned_absolute" ||
                      c.position_embedding_type == "rope" || c.position_embedding_type == "none",
                  kUnsupported,
                  "--position-embedding-type must be learned_absolute, rope or none, not '{}'",
                  c.position_embedding_type);
}

}  // namespace

nn::ParameterPlan plan_stage(const ModelConfig& config, const TensorLayout& layout,
                             const config::StagePlan& stage) {
  return plan_stage(config, layout, stage, transformer::layer_specs(config));
}

nn::ParameterPlan plan_stage(const ModelConfig& config, const TensorLayout& layout,
                             const config::StagePlan& stage,
                             const std::vector<transformer::LayerSpec>& specs) {
  check_config(config);
  const int head = static_cast<int>(config.num_layers);
  const bool tied = !config.untie_embeddings_and_output_weights;
  // The embedding's weight stands on the stage of the loss too, unless that is the same one.
  const bool two_copies = tied && !(stage.embedding && stage.loss);
  const GptTable table(config, specs.at(0).ffn);
  nn::ParameterPlan plan;
  if (stage.embedding) {
    if (two_copies) {
      add_tied_word_embedding(plan, table.word, -1, layout, /*counts=*/true);
    } else {
      add_leaf(plan, table.word, "", -1, layout);
    }
    if (config.position_embedding_type == "learned_absolute") {
      add_leaf(plan, table.position, "", -1, layout);
    }
  }
  for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
    const std::string prefix = "decoder.layers." + std::to_string(layer) + ".";
    const GptTable of_layer(config, specs.at(static_cast<std::size_t>(layer)).ffn);
    for (const LeafRule& rule : of_layer.layer) add_leaf(plan, rule, prefix, layer, layout);
  }
  if (stage.loss) {
    add_leaf(plan, table.final_norm, "", head, layout);
    if (!tied) add_leaf(plan, table.output, "", head, layout);
    if (two_copies) add_tied_word_embedding(plan, table.word, head, layout, /*counts=*/false);
  }
  return plan;
}

std::vector<std::vector<nn::ParameterPlan>> plan_parameters(const ModelConfig& config,
                                                            std::int64_t tensor_size,
                                                            std::int64_t pipeline_size,
                                                            bool sequence_parallel) {
  std::vector<std::vector<nn::ParameterPlan>> plans;
  for (const config::StagePlan& stage : config::equal_stages(config, pipeline_size)) {
    std::vector<nn::ParameterPlan>& ranks = plans.emplace_back();
    for (std::int64_t rank = 0; rank < tensor_size; ++rank) {
      ranks.push_back(plan_stage(
          config, parallel_layers::make_tensor_layout(tensor_size, rank, sequence_parallel),
          stage));
    }
  }
  return plans;
}

}  // namespace pentatron::models
