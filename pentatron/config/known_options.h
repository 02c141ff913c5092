// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "pentatron/config/option_table.h"

namespace pentatron::config {

// Rows of every option of Megatron-LM: spellings, destination, kind, default and choices from
// megatron_options.json, class, topic and reason from known_options.json (both embedded at build
// time). An option that known_options.json does not classify has a row in a hand-written table and
// is not among these. Read on first use; a fault in the files is a kInternal error.
[[nodiscard]] std::span<const OptionSpec> known_options();

// The embedded files.
[[nodiscard]] std::string_view megatron_options_json();
[[nodiscard]] std::string_view known_options_json();

}  // namespace pentatron::config
