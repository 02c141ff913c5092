// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/saved.h"

#include "pentatron/base/error.h"

namespace pentatron {

bool SavePolicy::wants_rebuild(const SaveSite& /*site*/) const { return false; }

void SavePolicy::can_rebuild(const Tensor& /*output*/, Rebuild /*rebuild*/) {}

// variable_data() shares the memory and carries no graph at all, so saving an op's own output makes
// no reference cycle.
Saved::Saved(const Tensor& activation)
    : tensor_(activation.defined() ? activation.variable_data() : Tensor()) {}

Saved::Saved(const Tensor& activation, SavePolicy* policy, const SaveSite& site) {
  if (!activation.defined()) return;
  if (policy != nullptr) slot_ = policy->slot_for(activation, site);
  if (slot_ == nullptr) tensor_ = activation.variable_data();
}

Tensor Saved::get() const {
  PENTATRON_CHECK(defined(), kInternal,
                  "a saved activation was asked for after its release (a second backward?)");
  return slot_ != nullptr ? slot_->get() : tensor_;
}

}  // namespace pentatron
