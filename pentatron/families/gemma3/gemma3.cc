// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "pentatron/config/choices.h"
#include "pentatron/families/gemma2/gemma.h"
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

// As Gemma 2, with norms of query and key heads.
void start(ModelConfig& model) {
  start_gemma(model);
  model.qk_layernorm = true;
}

constexpr double kGlobalTheta = 1000000.0;
constexpr double kLocalTheta = 10000.0;

// Newer files have an object for each kind of layer.
void read_by_kind(const ConfigFile& file, const Json& kinds, ModelConfig& model) {
  for (const auto& [kind, value] : kinds.items()) {
    const bool local = kind == "sliding_attention";
    if ((!local && kind != "full_attention") || !(value.is_object() || value.is_null())) {
      file.refuse("rope_parameters", "objects under full_attention and sliding_attention");
    }
    if (value.is_null()) continue;
    const ConfigFile parameters(value, fmt::format("{}: {}", file.path(), kind));
    if (!local) {
      model.rotary_base = read_rope_theta(parameters, "rope_theta", kGlobalTheta);
      read_rope_parameters(parameters, model);
      continue;
    }
    model.rotary_base_local = read_rope_theta(parameters, "rope_theta", kLocalTheta);
    if (parameters.find("rope_type") != nullptr && parameters.text("rope_type") != "default") {
      parameters.refuse("rope_type", "default: layers with a window are not scaled");
    }
  }
}

KeyRule rope_by_layer() {
  KeyRule rule{.keys = {"rope_theta", "rope_local_base_freq", "rope_scaling", "rope_parameters"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    model.position_embedding_type = "rope";
    model.rotary_base = read_rope_theta(file, "rope_theta", kGlobalTheta);
    model.rotary_base_local = read_rope_theta(file, "rope_local_base_freq", kLocalTheta);
    if (const Json* scaling = file.find("rope_scaling")) {
      if (!scaling->is_object()) file.refuse("rope_scaling", "an object or null");
      read_rope_parameters(ConfigFile(*scaling, file.path() + ": rope_scaling"), model);
    }
    if (const Json* kinds = file.find("rope_parameters")) {
      if (!kinds->is_object()) file.refuse("rope_parameters", "an object or null");
      read_by_kind(file, *kinds, model);
    }
    if (config::position_kind(model) != config::PositionKind::kRope || model.use_rope_scaling) {
      file.refuse("rope_scaling", "the type linear or default");
    }
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    json["rope_theta"] = model.rotary_base;
    json["rope_local_base_freq"] = model.rotary_base_local;
    json["rope_scaling"] = rope_scaling_of(model);
  };
  return rule;
}

KeyRules keys() {
  return joined(gemma_sizes(),
                {rope_by_layer(),
                 windows_by_layer({.missing_pattern = 6, .pattern_key = "sliding_window_pattern"}),
                 ignored_keys({"_sliding_window_pattern"}),
                 optional_key("attn_logit_softcapping", &ModelConfig::attn_logit_softcapping),
                 optional_key("final_logit_softcapping", &ModelConfig::final_logit_softcapping)});
}

// Gemma3ForConditionalGeneration: vision tower and projector beside the language model. Published
// files leave out of text_config what the library has as default.
constexpr std::string_view kTextDefaults =
    R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 256, "max_position_embeddings": 131072, "sliding_window": 4096})";
constexpr std::string_view kOtherKeys[] = {
    "vision_config",   "mm_tokens_per_image", "boi_token_index",
    "eoi_token_index", "image_token_index",   "image_token_id",
    "boi_token_id",    "eoi_token_id",        "initializer_range"};
constexpr OuterModel::Prefixes kPrefixes[] = {{"language_model.model.", "language_model."},
                                              {"model.language_model.", ""}};
constexpr std::string_view kOtherParts[] = {"vision_tower.", "multi_modal_projector.",
                                            "model.vision_tower.", "model.multi_modal_projector."};
constexpr OuterModel kWithPictures{.model_type = "gemma3",
                                   .architecture = "Gemma3ForConditionalGeneration",
                                   .text_defaults = kTextDefaults,
                                   .other_keys = kOtherKeys,
                                   .prefixes = kPrefixes,
                                   .other_parts = kOtherParts};

}  // namespace

const Family& gemma3() {
  static const Family kFamily =
      of_llama_kind({.name = "gemma3",
                     .model_type = "gemma3_text",
                     .architecture = "Gemma3ForCausalLM",
                     .start = start,
                     .keys = keys,
                     .names = gemma_names,
                     .outer = &kWithPictures,
                     .needs = {"norm_placement", "geglu", "embedding_multiplier"}});
  return kFamily;
}

}  // namespace pentatron::families
