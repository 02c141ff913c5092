// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pentatron/nn/module.h"
#include "pentatron/nn/unit.h"

namespace pentatron::nn {

// Named tensors that cross a pipeline edge, in order. `differentiable` ones get a gradient back.
struct BundleItem {
  std::string name;
  Tensor tensor;
  bool differentiable = true;
};
using Bundle = std::vector<BundleItem>;

struct BundleItemSpec {
  std::string name;
  Shape shape;
  DType dtype;
  bool differentiable = true;
};
using BundleSpec = std::vector<BundleItemSpec>;

// A pipeline stage's part of a model. The first stage takes an empty bundle (it reads the batch).
// The last returns what the step asks for (StepContext::output): "loss", the sum over valid tokens
// of the loss (scalar, loss dtype), to be seeded with 1 / global valid count; or "logits" [tokens,
// local vocabulary] in the logits dtype, without gradient.
class Stage : public Module {
 public:
  [[nodiscard]] virtual Bundle forward(const Bundle& input, StepContext& context) = 0;
  [[nodiscard]] virtual BundleSpec input_spec(
      const Batch& batch) const = 0;  // empty on the first stage
  [[nodiscard]] virtual BundleSpec output_spec(
      const Batch& batch) const = 0;  // empty on the last stage
  // The stage's units in the order in which forward runs them, each with run_unit() under its
  // position here. Every parameter is in exactly one.
  [[nodiscard]] virtual std::vector<Unit> units() = 0;
};

}  // namespace pentatron::nn
