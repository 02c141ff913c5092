// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pentatron/config/config.h"
#include "pentatron/config/problems.h"

// --multi-latent-attention (DeepSeek-AI, "DeepSeek-V2", 2024): keys and values of all heads come
// from one low-rank latent, queries from another one or from the hidden channels. A query and a key
// have --qk-head-dim channels without position and --qk-pos-emb-head-dim rotated ones, of keys
// shared by all heads; a value has --v-head-dim.
namespace pentatron::config {

// Channels of a head of values.
[[nodiscard]] inline std::int64_t value_channels(const ModelConfig& model) {
  return model.multi_latent_attention ? model.v_head_dim : model.kv_channels;
}

// Factor of the products of queries and keys: m^2 / sqrt(--kv-channels) with YaRN's m of
// --mscale-all-dim, whichever --rope-type there is.
[[nodiscard]] double latent_softmax_scale(const ModelConfig& model);

// Products of a layer per token, as Megatron counts them: those of all projections, with one more
// for each channel of a latent.
[[nodiscard]] double latent_projection_weights(const ModelConfig& model);

// Sets --kv-channels to the channels of a query; adds what does not go with the option, naming both
// and what to change.
void resolve_latent_attention(ModelConfig& model, Problems& problems);

}  // namespace pentatron::config
