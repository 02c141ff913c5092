// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "pentatron/config/config.h"

namespace pentatron::config {

// All fields as one JSON object with an object for each room; doubles read back equal.
[[nodiscard]] std::string to_json(const RunConfig& config, int indent = -1);

// The inverse. A field that is missing keeps its default (older files); an unknown field, a wrong
// type or a number out of range is an error of kind data that names `label`.
[[nodiscard]] RunConfig from_json(std::string_view text, std::string_view label);

// SHA-256 (hexadecimal) over what determines the model and the order of the data: its shape and
// formulas, true vocabulary, seed, data paths, split, tokenizer, masks, and the samples asked for.
// Layout, precision, schedule, paths of output and logging do not count. Takes a resolved config.
[[nodiscard]] std::string config_hash(const RunConfig& config);

}  // namespace pentatron::config
