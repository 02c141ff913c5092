// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// JSON from outside, strictly read. Callers that look into the value include <nlohmann/json.hpp>.
namespace pentatron {

inline constexpr int kMaxJsonDepth = 64;

// Parses one document. Refused with ErrorKind::kData, naming `name`:line:column: anything that is
// not JSON in UTF-8, text after the document, a key twice in one object, more than kMaxJsonDepth
// levels, numbers beyond a double.
[[nodiscard]] nlohmann::json parse_json(std::string_view text, std::string_view name);

// Text of a value; doubles read back equal, keys sorted (nlohmann::json's own order). indent < 0:
// one line. JSON has no NaN and no infinity: they become null. Strings that are no UTF-8: kData.
[[nodiscard]] std::string dump_json(const nlohmann::json& value, int indent = -1);

}  // namespace pentatron
