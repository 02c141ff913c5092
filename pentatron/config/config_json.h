// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "pentatron/config/option_table.h"

namespace pentatron::config {

// All fields as one JSON object with an object for each part; doubles read back equal.
[[nodiscard]] std::string to_json(const RunConfig& config, int indent = -1);

// The inverse. A field that is missing keeps its default (older files); an unknown field, a wrong
// type or a number out of range is an error of kind data that names `label`.
[[nodiscard]] RunConfig from_json(std::string_view text, std::string_view label);

// The fields of one resume class (option_table.h) as one flat object: what a checkpoint keeps to
// tell another model or run.
[[nodiscard]] std::string to_json(const RunConfig& config, Resume resume);

}  // namespace pentatron::config
