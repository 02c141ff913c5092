// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/comm/places.h"
#include "pentatron/optimizer/model_optimizer.h"

namespace pentatron::training {

// Over which axes the state of a grid's parameters is sharded and stands in copies, for any rank;
// without a context.
[[nodiscard]] optimizer::GridPlace grid_place(const comm::Place& place, comm::GridKind kind);

}  // namespace pentatron::training
