// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/bench/ceilings.h"
#include "pentatron/config/config.h"

namespace pentatron::bench {

// Where the least time of a step goes, in seconds.
struct TrainBound {
  double layer_products = 0;
  double head_products = 0;
  double attention = 0;
  double memory = 0;     // norms, rotary embedding, activations, casts to fp8, loss, embedding
  double optimizer = 0;  // once a step
  [[nodiscard]] double total() const {
    return layer_products + head_products + attention + memory + optimizer;
  }
};

// Bytes that a well fused step cannot do without, each tensor read or written once a kernel.
struct TrainBytes {
  double micro_batch = 0;
  double optimizer = 0;  // once a step
};
// Of a dense GPT of equal layers; `config` is resolved, vocabulary included. A residual addition
// with its norm moves four rows of hidden channels each way, rotary embedding of the packed heads
// reads and writes them, a gated activation moves 3 and 5 times its outputs, a plain one 2 and 3; a
// cast to fp8 reads 16 bits, twice where the scale is the tensor's own, and writes both orders; the
// loss reads and writes the logits. AdamW reads and writes main parameter and moments, reads the
// gradient and zeroes it, and writes the parameter that forward reads.
[[nodiscard]] TrainBytes train_bytes(const config::RunConfig& config);

// The bound of one rank's step: each product and attention at the speed measured alone in its own
// shape, bytes at the copy rate, nothing else.
[[nodiscard]] TrainBound train_bound(Device device, const config::RunConfig& config,
                                     double copy_bytes_per_second);

}  // namespace pentatron::bench
