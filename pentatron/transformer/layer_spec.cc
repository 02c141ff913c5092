// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/layer_spec.h"

#include <cmath>
#include <string>

#include "pentatron/config/layer_pattern.h"

namespace pentatron::transformer {

double output_init_std(const config::ModelConfig& config) {
  return config.init_method_std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
}

parallel_layers::NormForm norm_form(const config::ModelConfig& config) {
  return {.kind = config.normalization,
          .epsilon = config.layernorm_epsilon,
          .zero_centred = config.apply_layernorm_1p};
}

bool rotates(const config::ModelConfig& config) {
  return config.position_embedding_type == "rope" || config.position_embedding_type == "yarn";
}

namespace {

using config::ModelConfig;

ops::Activation activation_of(const ModelConfig& c) {
  if (c.squared_relu) return ops::Activation::kSquaredRelu;
  // Megatron's fused kernel adds a bias and has the tanh form.
  const bool fused = c.bias_gelu_fusion && c.add_bias_linear;
  return fused || c.openai_gelu ? ops::Activation::kGeluTanh : ops::Activation::kGeluErf;
}

std::optional<ops::Gate> gate_of(const ModelConfig& c) {
  if (!c.swiglu && !c.quick_geglu && !c.geglu) return std::nullopt;
  return ops::Gate{.kind = c.swiglu  ? ops::GateKind::kSilu
                           : c.geglu ? ops::GateKind::kGeluTanh
                                     : ops::GateKind::kQuickGelu,
                   .offset = c.glu_linear_offset,
                   .clamp = c.quick_geglu ? c.activation_func_clamp_value.value_or(0.0) : 0.0};
}

// Layers whose queries see the keys of a window alone. Of --window-attn-skip-freq a number N leaves
// out every N-th layer, a list the zeros, as Megatron reads them.
std::vector<bool> windowed_layers(const ModelConfig& c) {
  const auto layers = static_cast<std::size_t>(c.num_layers);
  if (c.window_size.empty()) return std::vector<bool>(layers, false);
  if (c.window_attn_skip_freq.empty()) return std::vector<bool>(layers, true);
  std::vector<bool> flags =
      config::layer_pattern(c.window_attn_skip_freq, c.num_layers, "--window-attn-skip-freq");
  const bool listed = c.window_attn_skip_freq.find('[') != std::string::npos;
  if (!listed) flags.flip();
  return flags;
}

}  // namespace

std::vector<LayerSpec> layer_specs(const ModelConfig& c) {
  const std::vector<config::ContextComm> context_comm = config::context_comm_of_layers(c);
  const std::vector<bool> unrotated =
      config::layer_pattern(c.no_rope_freq, c.num_layers, "--no-rope-freq");
  const std::vector<bool> windowed = windowed_layers(c);
  std::vector<LayerSpec> specs;
  for (std::size_t layer = 0; layer < unrotated.size(); ++layer) {
    const bool rotary = rotates(c) && !unrotated[layer];
    const bool local = c.rotary_base_local > 0 && windowed[layer];
    specs.push_back({.mixer = {.rotary = rotary,
                               .local_rotary = rotary && local,
                               .context_comm = context_comm[layer]},
                     .ffn = {.ffn_hidden_size = c.ffn_hidden_size,
                             .activation = activation_of(c),
                             .gate = gate_of(c)},
                     .norms_inputs = c.norm_placement != "post",
                     .norms_outputs = c.norm_placement != "pre",
                     .parallel = c.parallel_attention != "none",
                     .shared_norm = c.parallel_attention == "shared-norm",
                     .residual_after_norm = c.apply_residual_connection_post_layernorm});
  }
  return specs;
}

}  // namespace pentatron::transformer
