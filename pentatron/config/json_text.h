// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

// What option tables write of values in megatron_options.json.
namespace pentatron::config {

// The value as Python's repr() has it: None, True, 0.1, 'text', ['a', 'b'].
[[nodiscard]] std::string python_text(const nlohmann::json& value);

// The items of a list, texts as they are.
[[nodiscard]] std::string joined_text(const nlohmann::json& list, char separator);

}  // namespace pentatron::config
