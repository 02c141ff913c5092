// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace pentatron::config {

// Of a number N: whether it must divide the layers.
enum class EveryNth { kDivides, kMayBreakOff };

// Whether the text of a pattern is a list expression, not a number.
[[nodiscard]] bool is_listed(std::string_view text);

// Which layers an option means, one flag a layer. `text` is a number N (every N-th layer; `rule`
// says whether N divides the layers) or a list expression of zeros and ones as Megatron evaluates
// it: "[0,0,1]*2+[1]", "([0]*3+[1]*1)*8", whose length is the number of layers. Empty: none.
// Anything else: an error of kind config that names `option`, the text and what was expected.
[[nodiscard]] std::vector<bool> layer_pattern(std::string_view text, std::int64_t num_layers,
                                              std::string_view option,
                                              EveryNth rule = EveryNth::kDivides);

}  // namespace pentatron::config
