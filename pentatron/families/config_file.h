// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace pentatron::families {

using Json = nlohmann::json;

// An object of a config.json while it is read. Errors name the file, the key, what it says and what
// was expected: kData for a value of the wrong kind, kUnsupported for one that is no model of ours.
class ConfigFile final {
 public:
  // `json` is an object and outlives this.
  ConfigFile(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  [[nodiscard]] const Json& json() const { return json_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // Null where the key is missing or says null.
  [[nodiscard]] const Json* find(std::string_view key) const;
  // An integer from `least` to 1e9, also written as 10000.0.
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t least = 1) const;
  [[nodiscard]] double number(std::string_view key) const;  // finite
  [[nodiscard]] bool flag(std::string_view key) const;
  [[nodiscard]] std::string text(std::string_view key) const;

  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

 private:
  [[nodiscard]] const Json& at(std::string_view key) const;

  const Json& json_;
  std::string path_;
};

}  // namespace pentatron::families
