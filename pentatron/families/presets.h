// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "pentatron/config/parser.h"
#include "pentatron/families/family.h"

namespace pentatron::families {

// --model-preset: a published model's options, below those that a file or the command line give.
// An unknown name: kConfig with near ones. A preset that the options of this version cannot say:
// kUnsupported.
[[nodiscard]] config::ValueLayer preset_layer(std::string_view name);
// The same of any description: the model options that differ from their defaults.
[[nodiscard]] config::ValueLayer layer_of(const ModelConfig& model, config::Origin origin,
                                          std::string label);
// The model of a preset.
[[nodiscard]] Description preset_model(std::string_view name);

// One line a preset: name, family, layers, widths, heads, vocabulary, positions.
[[nodiscard]] std::string preset_table();

}  // namespace pentatron::families
