// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/mup.h"

#include <fmt/format.h>

#include <cmath>

namespace pentatron::config {

void resolve_mup(ModelConfig& model, Problems& problems) {
  if (!model.use_mup) return;
  if (model.mup_base_hidden_size == 0) model.mup_base_hidden_size = model.hidden_size;
  const double width =
      static_cast<double>(model.hidden_size) / static_cast<double>(model.mup_base_hidden_size);
  if (model.mup_width_mult != 1.0 && model.mup_width_mult != width) {
    problems.add(fmt::format("--mup-width-mult {} is not --hidden-size {} / "
                             "--mup-base-hidden-size {}: leave it out, it is derived",
                             model.mup_width_mult, model.hidden_size, model.mup_base_hidden_size),
                 "mup_width_mult");
  }
  model.mup_width_mult = width;
  if (!model.softmax_scale) {
    const double scale =
        std::sqrt(model.mup_base_head_dim.value_or(1.0)) /
        std::pow(static_cast<double>(model.kv_channels), model.mup_attn_scale_power);
    if (scale > 0 && std::isfinite(scale)) {
      model.softmax_scale = scale;
    } else {
      problems.add(
          fmt::format("--mup-attn-scale-power {} and --mup-base-head-dim {} make the "
                      "scale of attention {} at --kv-channels {}",
                      model.mup_attn_scale_power, model.mup_base_head_dim.value_or(1.0), scale,
                      model.kv_channels));
    }
  }
  if (model.mup_output_mult == 1.0) model.mup_output_mult = 1.0 / width;
}

}  // namespace pentatron::config
