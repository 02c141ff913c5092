// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/families/key_rules.h"

namespace pentatron::families {

// Which layers see a window of the last keys only, and how many keys that is, the token's own among
// them.
struct Windows {
  std::int64_t size = 0;          // 0: no layer has one
  std::vector<bool> layers = {};  // one flag a layer
};

// As ModelConfig says it (window_size, window_attn_skip_freq), and back. All layers without a
// window: both fields empty.
void set_windows(const Windows& windows, ModelConfig& model);
[[nodiscard]] Windows windows_of(const ModelConfig& model);

// sliding_window alone, for all layers or (null) none.
[[nodiscard]] KeyRule window_of_all_layers(std::int64_t missing);

// sliding_window with a list of kinds, layer_types ("full_attention", "sliding_attention").
struct WindowKeys {
  std::int64_t missing_window = 4096;
  // use_sliding_window turns it on, and where layer_types is missing, layers from max_window_layers
  // on have it.
  bool switched = false;
  std::int64_t missing_max_window_layers = 28;
  // Where layer_types is missing: every n-th layer sees all keys, unless this key says otherwise.
  std::int64_t missing_pattern = 0;
  std::string pattern_key = {};
};
[[nodiscard]] KeyRule windows_by_layer(const WindowKeys& keys);

}  // namespace pentatron::families
