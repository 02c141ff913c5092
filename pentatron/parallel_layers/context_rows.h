// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/sequence_cut.h"
#include "pentatron/tensor/tensor.h"

// What the ways of context-parallel attention share.
namespace pentatron::parallel_layers {

// kInternal unless q and k hold the rows of a share and the mask is causal.
void check_share(const Tensor& q_tnd, const Tensor& k_tgd, const SequenceLayout& rows, bool causal);

// A half of a rank's rows (a view).
[[nodiscard]] Tensor half_of(const Tensor& x_t, std::size_t half);

// Keys and values side by side, [t, 2g, d], as they travel, and views of the two.
[[nodiscard]] Tensor pack(const Tensor& k_tgd, const Tensor& v_tgd);
struct KeysAndValues {
  Tensor k, v;
};
[[nodiscard]] KeysAndValues unpack(const Tensor& kv);

}  // namespace pentatron::parallel_layers
