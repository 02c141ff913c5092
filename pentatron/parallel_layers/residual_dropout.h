// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

// Dropout of [local rows, hidden] keyed by (seed, site, sample, token, channel): the mask does not
// depend on which rank holds a row. Nothing is dropped outside training.
class ResidualDropout final : public nn::Module {
 public:
  // `site`: global name, "decoder.layers.3.hidden_dropout.1".
  ResidualDropout(const LeafContext& context, double probability, std::string site);
  [[nodiscard]] Tensor drop(const Tensor& x_th, nn::StepContext& step);
  // residual + drop(x).
  [[nodiscard]] Tensor forward(const Tensor& x_th, const Tensor& residual_th,
                               nn::StepContext& step);

 private:
  LeafContext context_;
  double probability_;
  std::string site_;
};

}  // namespace pentatron::parallel_layers
