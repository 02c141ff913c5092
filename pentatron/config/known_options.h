// SPDX-License-Identifier: Apache-2.0
// Written by tools/gen_known_options.py.
#pragma once

#include <span>

#include "pentatron/config/option_table.h"

namespace pentatron::config {

[[nodiscard]] std::span<const OptionSpec> known_options_1();
[[nodiscard]] std::span<const OptionSpec> known_options_2();
[[nodiscard]] std::span<const OptionSpec> known_options_3();
[[nodiscard]] std::span<const OptionSpec> known_options_4();
[[nodiscard]] std::span<const OptionSpec> known_options_5();
[[nodiscard]] std::span<const OptionSpec> known_options_6();
[[nodiscard]] std::span<const OptionSpec> known_options_7();
[[nodiscard]] std::span<const OptionSpec> known_options_8();
[[nodiscard]] std::span<const OptionSpec> known_options_9();

inline constexpr std::span<const OptionSpec> (*kKnownOptionTables[])() = {
    known_options_1, known_options_2, known_options_3, known_options_4, known_options_5,
    known_options_6, known_options_7, known_options_8, known_options_9};

}  // namespace pentatron::config
