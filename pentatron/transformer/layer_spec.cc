// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/layer_spec.h"

#include <cmath>
#include <string>

#include "pentatron/config/adapters.h"
#include "pentatron/config/attention_window.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/layer_pattern.h"
#include "pentatron/config/rotary_forms.h"
#include "pentatron/tensor/fp8_blockwise.h"

namespace pentatron::transformer {

double hidden_init_std(const config::ModelConfig& config) {
  return config.use_mup ? config.init_method_std / std::sqrt(config.mup_width_mult)
                        : config.init_method_std;
}

double output_init_std(const config::ModelConfig& config) {
  return hidden_init_std(config) / std::sqrt(2.0 * static_cast<double>(config.num_layers));
}

parallel_layers::NormForm norm_form(const config::ModelConfig& config) {
  const bool rms = config::norm_kind(config) == config::NormKind::kRmsNorm;
  return {.kind = rms ? parallel_layers::NormKind::kRmsNorm : parallel_layers::NormKind::kLayerNorm,
          .epsilon = config.layernorm_epsilon,
          .zero_centred = config.apply_layernorm_1p};
}

parallel_layers::AdapterForm adapter_form(const config::ModelConfig& config) {
  return {.rank = config.lora_rank,
          .scale = config::adapter_scale(config),
          .dropout = config.lora_dropout,
          .dora = config.lora_dora,
          .modules = config.lora_target_modules};
}

namespace {

using config::ModelConfig;
using config::NormPlacement;
using config::ParallelAttention;

ops::Activation activation_of(const ModelConfig& c) {
  if (c.squared_relu) return ops::Activation::kSquaredRelu;
  // Megatron's fused kernel adds a bias and has the tanh form.
  const bool fused = c.bias_gelu_fusion && (c.add_bias_linear || c.add_mlp_bias);
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

ops::Recipe fp8_recipe(const ModelConfig& c) {
  if (c.fp8.empty()) return {};
  const bool blockwise = config::fp8_scaling(c) == config::Fp8Scaling::kBlockwise;
  return {.numbers = Numbers::kFp8,
          .gradient = c.fp8 == "hybrid" ? tensor::Fp8Format::kE5M2 : tensor::Fp8Format::kE4M3,
          .activations = blockwise ? tensor::kActivationBlock : tensor::ScaleBlock{},
          .weights = blockwise ? tensor::kWeightBlock : tensor::ScaleBlock{},
          .weight_gradient = c.fp8_wgrad};
}

}  // namespace

ops::Recipe layer_recipe(const ModelConfig& c, std::int64_t layer) {
  const bool wide =
      c.first_last_layers_bf16 && (layer < c.num_layers_at_start_in_bf16 ||
                                   layer >= c.num_layers - c.num_layers_at_end_in_bf16);
  return wide ? ops::Recipe{} : fp8_recipe(c);
}

ops::Recipe output_recipe(const ModelConfig& c) {
  return c.fp8_output_proj ? fp8_recipe(c) : ops::Recipe{};
}

namespace {

std::optional<parallel_layers::DelayedScaling> delayed_scaling(const ModelConfig& c,
                                                               std::int64_t layer) {
  if (layer_recipe(c, layer).numbers != Numbers::kFp8 ||
      config::fp8_scaling(c) != config::Fp8Scaling::kDelayed) {
    return {};
  }
  return parallel_layers::DelayedScaling{.steps = c.fp8_amax_history_len,
                                         .largest = c.fp8_amax_compute_algo == "max",
                                         .margin = c.fp8_margin};
}

}  // namespace

std::vector<LayerSpec> layer_specs(const ModelConfig& c) {
  const std::vector<config::ContextComm> context_comm = config::context_comm_of_layers(c);
  const std::vector<bool> unrotated =
      config::layer_pattern(c.no_rope_freq, c.num_layers, "--no-rope-freq");
  const std::vector<std::int64_t> windows = config::window_of_layers(c);
  const std::vector<config::LayerShape> shapes = config::layer_shapes(c);
  const NormPlacement norms = config::norm_placement(c);
  const ParallelAttention parallel = config::parallel_attention(c);
  std::vector<LayerSpec> specs;
  for (std::size_t layer = 0; layer < unrotated.size(); ++layer) {
    const bool rotary = config::rotates(c) && (c.multi_latent_attention || !unrotated[layer]);
    const bool local = c.rotary_base_local > 0 && windows[layer] >= 0 && !c.multi_latent_attention;
    specs.push_back({.mixer = {.form = shapes[layer].attention,
                               .num_query_groups = shapes[layer].num_query_groups,
                               .rotary = rotary,
                               .local_rotary = rotary && local,
                               .window = windows[layer],
                               .context_comm = context_comm[layer]},
                     .ffn = {.form = shapes[layer].mlp,
                             .ffn_hidden_size = shapes[layer].ffn_hidden_size,
                             .activation = activation_of(c),
                             .gate = gate_of(c)},
                     .norms_inputs = norms != NormPlacement::kOutputs,
                     .norms_outputs = norms != NormPlacement::kInputs,
                     .parallel = parallel != ParallelAttention::kNone,
                     .shared_norm = parallel == ParallelAttention::kSharedNorm,
                     .residual_after_norm = c.apply_residual_connection_post_layernorm,
                     .recipe = layer_recipe(c, static_cast<std::int64_t>(layer)),
                     .delayed_scaling = delayed_scaling(c, static_cast<std::int64_t>(layer))});
  }
  return specs;
}

}  // namespace pentatron::transformer
