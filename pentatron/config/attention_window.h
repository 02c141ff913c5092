// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/config/config.h"

namespace pentatron::config {

// How many keys before its own place the queries of each layer see at most (--window-size and
// --window-attn-skip-freq), one number a layer; -1: all. As Megatron-LM has it: a window (L, R)
// reaches from L keys before to R after, -1 without limit; a frequency N gives every N-th layer all
// keys, a list says 1 where a layer has the window. Kind config, with option and value, for what is
// no such pair or list, and for R other than 0 or -1, since the model is causal.
[[nodiscard]] std::vector<std::int64_t> window_of_layers(const ModelConfig& model);

// --window-size in the one spelling of all that mean the same: "L,0", empty without a window. The
// errors above.
[[nodiscard]] std::string canonical_window(const std::string& window_size);

}  // namespace pentatron::config
