// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"

// Members of a tokenizer.json with errors that name the file and the member.
namespace pentatron::tokenizers {

[[nodiscard]] inline const nlohmann::json& member(const nlohmann::json& object, const char* key,
                                                  std::string_view name) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  PENTATRON_CHECK(object.is_object() && found != object.end(), kData, "{}: '{}' is missing", name,
                  key);
  return *found;
}

[[nodiscard]] inline std::string text_member(const nlohmann::json& object, const char* key,
                                             std::string_view name) {
  const nlohmann::json& value = member(object, key, name);
  PENTATRON_CHECK(value.is_string(), kData, "{}: '{}' is not a text", name, key);
  return value.get<std::string>();
}

// A text of one character, as the reference library takes it. Nothing may be replaced, stripped or
// split by the empty text: that would have no end.
[[nodiscard]] inline std::string character_member(const nlohmann::json& object, const char* key,
                                                  std::string_view name) {
  std::string text = text_member(object, key, name);
  const auto starts = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; };
  PENTATRON_CHECK(std::count_if(text.begin(), text.end(), starts) == 1, kData,
                  "{}: '{}' is {}, expected one character", name, key, quoted_for_message(text));
  return text;
}

// `fallback` where the member is missing or null.
[[nodiscard]] inline bool flag_member(const nlohmann::json& object, const char* key, bool fallback,
                                      std::string_view name) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  PENTATRON_CHECK(found->is_boolean(), kData, "{}: '{}' is not true or false", name, key);
  return found->get<bool>();
}

[[nodiscard]] inline bool has_member(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

}  // namespace pentatron::tokenizers
