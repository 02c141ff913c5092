// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/config/config.h"
#include "pentatron/nn/shard_spec.h"
#include "pentatron/ops/adamw.h"

namespace pentatron::optimizer {

// What maximal update parametrisation (G. Yang et al., "Tensor programs V", 2022, tables 3 and 8)
// changes in updates, as Megatron-LM does it, for a model w times as wide as its base:
// - Adam: matrices inside layers (hidden in, hidden out) have the learning rate / w and eps / w;
// - SGD: embeddings, output layer, norms and biases have the learning rate x w; with --decoupled-lr
//   embeddings of words and output layer have that one instead;
// - adapters are of few rows or columns at any width: A (many inputs) is a matrix inside a layer,
//   B (few) is of the others, as S. Hayou et al. ("LoRA+", 2024) derive for Adam;
// - Muon: nothing. Its matrices are orthogonalised, and Adam has the rest, which is not scaled.
// Initial values and multipliers of the model stand elsewhere (transformer/layer_spec.h,
// models/gpt).
struct WidthScaling {
  bool of_hidden = false;   // matrices inside layers
  bool of_vectors = false;  // all others
  bool decoupled = false;   // of these, words and output keep to --decoupled-lr
  double lr_factor = 1.0;   // of the learning rates, highest and lowest, of those
  double eps_factor = 1.0;  // of their Adam's eps

  [[nodiscard]] ops::RateClass rate_of(nn::ShardRole role) const;
  [[nodiscard]] double eps_factor_of(nn::ShardRole role) const;
};
// `model` is resolved. Without --use-mup, or at the base's width: nothing.
[[nodiscard]] WidthScaling width_scaling(const config::ModelConfig& model,
                                         const config::OptimizerConfig& optimizer);

// " > maximal update parametrisation: width 4 x the base, learning rate x 0.25 and eps x 0.25 of
// matrices inside layers"; empty without --use-mup.
[[nodiscard]] std::string width_scaling_line(const config::ModelConfig& model,
                                             const config::OptimizerConfig& optimizer);

}  // namespace pentatron::optimizer
