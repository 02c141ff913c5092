// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/width_scaling.h"

#include "pentatron/config/choices.h"

#include <fmt/format.h>

namespace pentatron::optimizer {
namespace {

bool is_hidden(nn::ShardRole role) {
  return role == nn::ShardRole::kMatrix || role == nn::ShardRole::kQkv;
}

bool is_scaled(const WidthScaling& scaling, nn::ShardRole role) {
  if (is_hidden(role)) return scaling.of_hidden;
  return scaling.of_vectors && !(scaling.decoupled && nn::has_decoupled_lr(role));
}

}  // namespace

ops::RateClass WidthScaling::rate_of(nn::ShardRole role) const {
  if (is_scaled(*this, role)) return ops::RateClass::kWidth;
  return nn::has_decoupled_lr(role) ? ops::RateClass::kDecoupled : ops::RateClass::kUsual;
}

double WidthScaling::eps_factor_of(nn::ShardRole role) const {
  return is_scaled(*this, role) ? eps_factor : 1.0;
}

WidthScaling width_scaling(const config::ModelConfig& model,
                           const config::OptimizerConfig& optimizer) {
  const double width = model.mup_width_mult;
  if (!model.use_mup || width == 1.0) return {};
  switch (config::optimizer_kind(optimizer)) {
    case config::OptimizerKind::kAdam:
      return {.of_hidden = true, .lr_factor = 1.0 / width, .eps_factor = 1.0 / width};
    case config::OptimizerKind::kSgd:
      return {
          .of_vectors = true, .decoupled = optimizer.decoupled_lr.has_value(), .lr_factor = width};
    default:
      return {};
  }
}

std::string width_scaling_line(const config::ModelConfig& model,
                               const config::OptimizerConfig& optimizer) {
  if (!model.use_mup) return {};
  const WidthScaling scaling = width_scaling(model, optimizer);
  std::string text =
      fmt::format(" > maximal update parametrisation: width {} x the base", model.mup_width_mult);
  if (scaling.of_hidden) {
    return text + fmt::format(", learning rate x {} and eps x {} of {}", scaling.lr_factor,
                              scaling.eps_factor,
                              model.lora_rank > 0 ? "adapters' A" : "matrices inside layers");
  }
  if (scaling.of_vectors) {
    return text + fmt::format(", learning rate x {} of all that are no matrices inside layers",
                              scaling.lr_factor);
  }
  return text + ", the same learning rate for all";
}

}  // namespace pentatron::optimizer
