// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "pentatron/ops/recipe.h"
#include "pentatron/tensor/saved.h"
#include "pentatron/tensor/weight_grad_queue.h"

namespace pentatron::ops {

// Where an op runs and how: handed to every op that saves activations or may postpone work. A plain
// value: whoever wants another rule for a part of a model hands that part a changed copy.
struct Scope {
  WeightGradQueue* queue = nullptr;  // null: weight gradients at once
  int unit = 0;                      // of the model, as events count them
  SavePolicy* saves = nullptr;       // null: activations are kept
  int micro_batch = 0;
  int chunk = 0;  // of the pipeline stage
  Recipe recipe = {};

  // Runs `work`, or puts it into the queue under this scope's unit.
  void put(WeightGradQueue::Work work) const;
  // `op`: the name of the Backward that saves.
  [[nodiscard]] Saved save(const Tensor& activation, std::string_view op) const;
  // Offers the policy a way to make `output`, which `op` has just made from `inputs`, again. `make`
  // gets the inputs' values as forward had them and gives the same bits.
  using Make = std::function<Tensor(const Tensor& input)>;
  void offer_rebuild(const Tensor& output, std::string_view op, const Tensor& input,
                     Make make) const;
};

// A copy for another unit: where a weight's work is done by a unit other than the one that runs.
[[nodiscard]] inline Scope in_unit(Scope scope, int unit) {
  scope.unit = unit;
  return scope;
}

}  // namespace pentatron::ops
