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
// The last returns what the step asks for (StepContext::output): its losses, scalars in the loss
// dtype, equal on all tensor-parallel ranks, each the sum of what its ledger entry of that name
// counts, seeded with StepLedger::seed_of; or "logits" [tokens, local vocabulary] in the logits
// dtype, without gradient.
class Stage : public Module {
 public:
  // The losses that the last stage returns, declared on every one.
  explicit Stage(std::vector<LedgerEntry> losses = {token_loss("lm loss")}) {
    for (LedgerEntry& loss : losses) declare_scalar(std::move(loss));
  }
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
