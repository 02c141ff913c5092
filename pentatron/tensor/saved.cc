// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/saved.h"

#include "pentatron/base/error.h"

namespace pentatron {

// variable_data() shares the memory and carries no graph at all, so saving an op's own output makes
// no reference cycle.
Saved::Saved(const Tensor& activation)
    : tensor_(activation.defined() ? activation.variable_data() : Tensor()) {}

Tensor Saved::get() const {
  PENTATRON_CHECK(tensor_.defined(), kInternal,
                  "a saved activation was asked for after its release (a second backward?)");
  return tensor_;
}

}  // namespace pentatron
