// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/json_text.h"

#include "pentatron/base/format.h"

namespace pentatron::config {

std::string python_text(const nlohmann::json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return python_repr(value.get<bool>());
  if (value.is_number_integer()) return value.dump();
  if (value.is_number()) return python_repr(value.get<double>());
  if (value.is_string()) return python_repr(value.get<std::string>());
  std::string text = "[";
  for (const nlohmann::json& item : value)
    text += (text.size() > 1 ? ", " : "") + python_text(item);
  return text + "]";
}

std::string joined_text(const nlohmann::json& list, char separator) {
  std::string text;
  for (const nlohmann::json& item : list) {
    if (!text.empty()) text += separator;
    text += item.is_string() ? item.get<std::string>() : item.dump();
  }
  return text;
}

}  // namespace pentatron::config
