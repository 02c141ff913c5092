// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/scope.h"

#include <utility>

namespace pentatron::ops {

void Scope::put(WeightGradQueue::Work work) const {
  if (queue == nullptr) {
    work();
    return;
  }
  queue->put({.unit = unit, .micro_batch = micro_batch, .chunk = chunk}, std::move(work));
}

Saved Scope::save(const Tensor& activation, std::string_view op) const {
  return {activation, saves, {.op = op, .unit = unit, .micro_batch = micro_batch}};
}

void Scope::offer_rebuild(const Tensor& output, std::string_view op, const Tensor& input,
                          Make make) const {
  const SaveSite site{.op = op, .unit = unit, .micro_batch = micro_batch};
  if (saves == nullptr || !saves->wants_rebuild(site)) return;
  saves->can_rebuild(output, [saved = Saved(input, saves, site), make = std::move(make)] {
    return make(saved.get());
  });
}

}  // namespace pentatron::ops
