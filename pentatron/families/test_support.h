// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/families/family.h"

// Included by tests only.
namespace pentatron::families::test_support {

// {"llama": {"config": {...}, "tensors": {"model.norm.weight": [64], ...}}, ...}, written by
// tools/reference/hugging_face_reference.py.
inline const Json& reference_models() {
  static const Json kModels = [] {
    const char* root = std::getenv("PENTATRON_SOURCE_DIR");
    const std::string path =
        std::string(root == nullptr ? "." : root) + "/pentatron/families/testdata/models.json";
    return parse_json(read_text_file(path), path);
  }();
  return kModels;
}

// The weights of a model, by the rules of nn/shard_spec.h's names.
inline std::vector<Part> parts_of(const ModelConfig& m) {
  std::vector<Part> parts;
  const bool layer_norm = m.normalization == "LayerNorm";
  const auto norm = [&](const std::string& name, std::int64_t width) {
    parts.push_back({name + ".weight", {width}});
    if (layer_norm) parts.push_back({name + ".bias", {width}});
  };
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns,
                          bool bias) {
    parts.push_back({name + ".weight", {rows, columns}});
    if (bias) parts.push_back({name + ".bias", {rows}});
  };
  const std::int64_t h = m.hidden_size;
  const std::int64_t q = m.num_attention_heads * m.kv_channels;
  const std::int64_t kv = m.num_query_groups * m.kv_channels;
  const bool gated = m.swiglu || m.geglu;
  matrix("embedding.word_embeddings", m.vocab_size, h, false);
  if (m.position_embedding_type == "learned_absolute") {
    matrix("embedding.position_embeddings", m.max_position_embeddings, h, false);
  }
  for (std::int64_t layer = 0; layer < m.num_layers; ++layer) {
    const std::string at = "decoder.layers." + std::to_string(layer) + ".";
    if (m.norm_placement != "post") norm(at + "input_layernorm", h);
    const bool qkv_bias = m.add_bias_linear || m.add_qkv_bias;
    matrix(at + "self_attention.linear_qkv.q", q, h, qkv_bias);
    matrix(at + "self_attention.linear_qkv.k", kv, h, qkv_bias);
    matrix(at + "self_attention.linear_qkv.v", kv, h, qkv_bias);
    const bool all_heads = m.qk_norm_scope == "all-heads";
    if (m.qk_layernorm) norm(at + "self_attention.q_layernorm", all_heads ? q : m.kv_channels);
    if (m.qk_layernorm) norm(at + "self_attention.k_layernorm", all_heads ? kv : m.kv_channels);
    matrix(at + "self_attention.linear_proj", h, q,
           m.add_bias_linear || m.add_attention_output_bias);
    if (m.norm_placement != "pre") norm(at + "post_self_attn_layernorm", h);
    if (m.norm_placement != "post" && m.parallel_attention != "shared-norm") {
      norm(at + "pre_mlp_layernorm", h);
    }
    const bool mlp_bias = m.add_bias_linear || m.add_mlp_bias;
    if (gated) {
      matrix(at + "mlp.linear_fc1.gate", m.ffn_hidden_size, h, mlp_bias);
      matrix(at + "mlp.linear_fc1.up", m.ffn_hidden_size, h, mlp_bias);
    } else {
      matrix(at + "mlp.linear_fc1", m.ffn_hidden_size, h, mlp_bias);
    }
    matrix(at + "mlp.linear_fc2", h, m.ffn_hidden_size, mlp_bias);
    if (m.norm_placement != "pre") norm(at + "post_mlp_layernorm", h);
  }
  norm("decoder.final_layernorm", h);
  if (m.untie_embeddings_and_output_weights) matrix("output_layer", m.vocab_size, h, false);
  return parts;
}

}  // namespace pentatron::families::test_support
