// SPDX-License-Identifier: Apache-2.0
#include "pentatron/models/gpt/sharding.h"

#include <string>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/config/choices.h"
#include "pentatron/parallel_layers/leaf_rule.h"
#include "pentatron/transformer/block.h"

namespace pentatron::models {
namespace {

using config::ModelConfig;
using parallel_layers::add_leaf;
using parallel_layers::Cut;
using parallel_layers::LeafRule;
using parallel_layers::TensorLayout;

// Embeddings start as the other weights do unless they have a deviation of their own.
void set_embedding_init(const ModelConfig& c, LeafRule& rule) {
  rule.std = c.embedding_init_method_std.value_or(c.init_method_std);
  rule.xavier = c.init_method_xavier_uniform && !c.embedding_init_method_std;
}

// With --pad-vocab-in-softmax the padding's rows are weights as any others.
LeafRule vocabulary_rule(const ModelConfig& c, const char* name, nn::ShardRole role) {
  const Cut vocabulary{.axis = "tp", .units = c.padded_vocab_size, .option = "--padded-vocab-size"};
  return {.name = name,
          .parts = {{.rows = c.pad_vocab_in_softmax ? c.padded_vocab_size : c.vocab_size,
                     .cut = vocabulary}},
          .columns = c.hidden_size,
          .std = c.init_method_std,
          .padded_rows = c.padded_vocab_size,
          .xavier = c.init_method_xavier_uniform,
          .role = role};
}
LeafRule word_rule(const ModelConfig& c) {
  LeafRule rule = vocabulary_rule(c, "embedding.word_embeddings", nn::ShardRole::kWordEmbedding);
  set_embedding_init(c, rule);
  return rule;
}
LeafRule position_rule(const ModelConfig& c) {
  LeafRule rule{.name = "embedding.position_embeddings",
                .parts = {{.rows = c.max_position_embeddings}},
                .columns = c.hidden_size,
                .role = nn::ShardRole::kPositionTable};
  set_embedding_init(c, rule);
  return rule;
}
// Of an untied model. Maximal update parametrisation counts it with the embeddings, as its logits
// are scaled instead.
LeafRule output_rule(const ModelConfig& c) {
  LeafRule rule = vocabulary_rule(c, "output_layer", nn::ShardRole::kOutput);
  if (c.use_mup) set_embedding_init(c, rule);
  return rule;
}

// A weight that several stages hold under one name; only the first stage's copy counts.
void add_tied(nn::ParameterPlan& plan, const LeafRule& rule, int number, const TensorLayout& layout,
              bool counts) {
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
  static_cast<void>(config::norm_kind(c));
  static_cast<void>(config::position_kind(c));
  PENTATRON_CHECK(!c.qk_layernorm || !c.qk_l2_norm, kConfig,
                  "--qk-layernorm and --qk-l2-norm exclude each other: give one");
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
  // The embedding's weight stands on the stage of the loss too, as the output layer's, unless that
  // is the same one.
  const bool two_copies = tied && !(stage.embedding && stage.loss);
  nn::ParameterPlan plan;
  if (stage.embedding) {
    if (two_copies) {
      add_tied(plan, word_rule(config), -1, layout, /*counts=*/true);
    } else {
      add_leaf(plan, word_rule(config), "", -1, layout);
    }
    if (config::position_kind(config) == config::PositionKind::kLearnedAbsolute) {
      add_leaf(plan, position_rule(config), "", -1, layout);
    }
  }
  // Each stage with layers has its copy, in the unit of the first of them.
  if (config::position_kind(config) == config::PositionKind::kRelative && stage.num_layers() > 0) {
    add_tied(plan, transformer::relative_position_rule(config, "decoder"), stage.first_layer,
             layout,
             /*counts=*/stage.first_layer == 0);
  }
  for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
    const std::string prefix = "decoder.layers." + std::to_string(layer) + ".";
    const transformer::LayerSpec& spec = specs.at(static_cast<std::size_t>(layer));
    for (const LeafRule& rule : transformer::layer_rules(config, spec)) {
      add_leaf(plan, rule, prefix, layer, layout);
    }
  }
  if (stage.loss) {
    add_leaf(plan,
             parallel_layers::norm_rule("decoder.final_layernorm", config.hidden_size,
                                        transformer::norm_form(config)),
             "", head, layout);
    if (!tied) {
      add_leaf(plan, output_rule(config), "", head, layout);
    }
    if (two_copies) {
      add_tied(plan, word_rule(config), head, layout, /*counts=*/false);
    }
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
