// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/layer_spec.h"

#include <cmath>

namespace pentatron::transformer {

double output_init_std(const config::ModelConfig& config) {
  return config.init_method_std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
}

std::vector<LayerSpec> layer_specs(const config::ModelConfig& config) {
  const LayerSpec every{
      .mixer = {.rotary = config.position_embedding_type == "rope"},
      .ffn = {.ffn_hidden_size = config.ffn_hidden_size,
              .activation = config.swiglu ? Activation::kSwiglu : Activation::kGeluTanh}};
  return std::vector<LayerSpec>(static_cast<std::size_t>(config.num_layers), every);
}

}  // namespace pentatron::transformer
