// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "pentatron/config/choices.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"

namespace pentatron::families {
namespace {

constexpr std::string_view kIgnored[] = {".rotary_emb.inv_freq", ".maybe_rotary.inv_freq"};

// Queries of a group, its key and its value stand together; with one group that is all queries, the
// key, the value, and with a group a head, head by head. The norms come first, so that they can be
// exchanged.
constexpr std::array kNames = std::to_array<NameRule>({
    {"decoder.layers.{}.input_layernorm.", "transformer.h.{}.input_layernorm."},
    {"decoder.layers.{}.pre_mlp_layernorm.", "transformer.h.{}.post_attention_layernorm."},
    {"embedding.word_embeddings.", "transformer.word_embeddings."},
    {"decoder.layers.{}.self_attention.linear_qkv.q.",
     "transformer.h.{}.self_attention.query_key_value.", grouped_query},
    {"decoder.layers.{}.self_attention.linear_qkv.k.",
     "transformer.h.{}.self_attention.query_key_value.", grouped_key},
    {"decoder.layers.{}.self_attention.linear_qkv.v.",
     "transformer.h.{}.self_attention.query_key_value.", grouped_value},
    {"decoder.layers.{}.self_attention.linear_proj.", "transformer.h.{}.self_attention.dense."},
    {"decoder.layers.{}.mlp.linear_fc1.", "transformer.h.{}.mlp.dense_h_to_4h."},
    {"decoder.layers.{}.mlp.linear_fc2.", "transformer.h.{}.mlp.dense_4h_to_h."},
    {"decoder.final_layernorm.", "transformer.ln_f."},
    {"output_layer.", "lm_head."},
});

constexpr auto own_norm_names() {
  auto names = kNames;
  names[0].theirs = "transformer.h.{}.ln_attn.";
  names[1].theirs = "transformer.h.{}.ln_mlp.";
  return names;
}
constexpr std::array kOwnNormNames = own_norm_names();

void start(ModelConfig& model) { model.normalization = "LayerNorm"; }

bool flag_or(const ConfigFile& file, const char* key, bool missing) {
  return file.find(key) == nullptr ? missing : file.flag(key);
}

// Groups of heads, and where the norms stand: keys of two generations of the model.
KeyRule architecture() {
  KeyRule rule{.keys = {"new_decoder_architecture", "multi_query", "num_kv_heads", "parallel_attn",
                        "num_ln_in_parallel_attn"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const bool is_new = flag_or(file, "new_decoder_architecture", false);
    const bool multi_query = flag_or(file, "multi_query", true);
    const bool parallel = flag_or(file, "parallel_attn", true);
    const std::int64_t heads = model.num_attention_heads;
    const std::int64_t said =
        file.find("num_kv_heads") == nullptr ? heads : file.integer("num_kv_heads");
    const std::int64_t groups = is_new || !multi_query ? said : 1;
    if (!is_new && !multi_query && said != heads) {
      file.refuse("num_kv_heads", "as many as heads, or the new_decoder_architecture");
    }
    if (heads % groups != 0) {
      file.refuse("num_kv_heads", fmt::format("a divisor of the {} attention heads", heads));
    }
    model.group_query_attention = groups != heads;
    model.num_query_groups = groups;
    const std::int64_t norms = file.find("num_ln_in_parallel_attn") == nullptr
                                   ? (is_new ? 2 : 1)
                                   : file.integer("num_ln_in_parallel_attn");
    if (norms > 2 || (norms == 2 && !is_new)) {
      file.refuse("num_ln_in_parallel_attn", "1, or 2 with the new_decoder_architecture");
    }
    if (is_new && !parallel) file.refuse("parallel_attn", "true in the new_decoder_architecture");
    model.parallel_attention = !parallel ? "none" : norms == 2 ? "own-norms" : "shared-norm";
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    const bool one_group = model.num_query_groups == 1;
    const bool parallel = model.parallel_attention != "none";
    const bool own_norms = model.parallel_attention == "own-norms";
    const bool is_new = own_norms || (parallel && !one_group);
    json["new_decoder_architecture"] = is_new;
    json["multi_query"] = !is_new && one_group;
    json["num_kv_heads"] = model.num_query_groups;
    json["parallel_attn"] = parallel;
    json["num_ln_in_parallel_attn"] = own_norms ? Json(2) : is_new ? Json(1) : Json(nullptr);
  };
  return rule;
}

KeyRule inner_size() {
  KeyRule rule{.keys = {"ffn_hidden_size", "ff_factor"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const bool absent = file.find("ffn_hidden_size") == nullptr;
    model.ffn_hidden_size = absent ? 4 * model.hidden_size : file.integer("ffn_hidden_size");
    if (file.find("ff_factor") == nullptr) return;
    if (file.integer("ff_factor") * model.hidden_size != model.ffn_hidden_size) {
      file.refuse("ff_factor", "ffn_hidden_size / hidden_size");
    }
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    json["ffn_hidden_size"] = model.ffn_hidden_size;
  };
  return rule;
}

// GELU is the erf form; the options say so only where it has a bias.
KeyRule biases() {
  KeyRule rule = flag_key("bias", &ModelConfig::add_bias_linear, /*missing=*/false);
  rule.read = [read = rule.read](const ConfigFile& file, ModelConfig& model) {
    read(file, model);
    model.bias_gelu_fusion = !model.add_bias_linear;
  };
  return rule;
}

// Rotary embedding, or ALiBi (RW), whose biases the library makes in bf16 and divides by the root
// of the head's size. What else the file says of a rotary embedding has no effect then.
KeyRule positions() {
  KeyRule rule = rope_keys();
  rule.keys.push_back("alibi");
  rule.read = [rope = rule.read](const ConfigFile& file, ModelConfig& model) {
    if (!flag_or(file, "alibi", false)) return rope(file, model);
    const std::int64_t size = model.hidden_size / model.num_attention_heads;
    if (size * model.num_attention_heads != model.hidden_size) {
      file.refuse("num_attention_heads", "a divisor of hidden_size");
    }
    model.position_embedding_type = "alibi";
    model.alibi_in_bf16 = true;
    model.alibi_scale = 1.0 / std::sqrt(static_cast<double>(size));
  };
  rule.write = [rope = rule.write](const ModelConfig& model, Json& json) {
    const bool alibi = config::position_kind(model) == config::PositionKind::kAlibi;
    json["alibi"] = alibi;
    if (!alibi) rope(model, json);
  };
  return rule;
}

KeyRules keys() {
  return {size_key("vocab_size", &ModelConfig::vocab_size),
          size_key("hidden_size", &ModelConfig::hidden_size),
          size_key("num_hidden_layers", &ModelConfig::num_layers),
          size_key("num_attention_heads", &ModelConfig::num_attention_heads),
          size_key("max_position_embeddings", &ModelConfig::max_position_embeddings, 2048),
          architecture(),
          inner_size(),
          biases(),
          choice_key("activation", {"gelu"}),
          number_key("layer_norm_epsilon", &ModelConfig::layernorm_epsilon, 1e-5),
          number_key("initializer_range", &ModelConfig::init_method_std, 0.02),
          number_key("hidden_dropout", &ModelConfig::hidden_dropout, 0.0),
          number_key("attention_dropout", &ModelConfig::attention_dropout, 0.0),
          fixed_key("apply_residual_connection_post_layernorm", false),
          positions(),
          tied_embeddings(/*missing=*/true)};
}

std::span<const NameRule> names(const ModelConfig& model) {
  if (model.parallel_attention == "own-norms") return kOwnNormNames;
  return kNames;
}

}  // namespace

const Family& falcon() {
  static const Family kFamily{.name = "falcon",
                              .model_type = "falcon",
                              .architecture = "FalconForCausalLM",
                              .base_prefix = "transformer.",
                              .ignored_tensors = kIgnored,
                              .start = start,
                              .keys = keys,
                              .names = names};
  return kFamily;
}

}  // namespace pentatron::families
