// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/grid_place.h"

namespace pentatron::training {

optimizer::GridPlace grid_place(const comm::Place& place, comm::GridKind kind) {
  const char* const grid = kind == comm::GridKind::kDense ? "dense" : "expert";
  // One instance of the optimizer state: no second level of groups.
  if (place.size(comm::instance_axes(kind).at(0)) == 1) {
    return {.grid = grid, .shard_over = comm::replica_axes(kind)};
  }
  return {.grid = grid,
          .shard_over = comm::shard_axes(kind),
          .replicate_over = comm::instance_axes(kind)};
}

}  // namespace pentatron::training
