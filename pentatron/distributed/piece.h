// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/nn/parameter.h"

namespace pentatron::distributed {

// A run of a part's box that this rank updates, with 1-D views of everything that belongs to it.
struct Piece {
  nn::Parameter* weight = nullptr;
  const nn::ShardPart* part = nullptr;
  std::int64_t box_begin = 0;  // row-major element number inside the part's box
  Tensor parameter;            // stored values, in the parameter dtype
  Tensor main;                 // what updates change; the same memory where the dtypes agree
  Tensor grad;                 // final after finish_step, where the reduction left it
  // What updates read: `grad`, or a copy on the host that fetch_gradients fills.
  Tensor update_grad;
  std::vector<Tensor> state;  // of the update rule, in the order of its names
  bool on_host = false;       // main, update_grad and state are on the host

  [[nodiscard]] std::int64_t length() const { return parameter.numel(); }
  [[nodiscard]] bool whole() const { return length() == part->box.num_elements(); }
};

}  // namespace pentatron::distributed
