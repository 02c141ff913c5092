// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/config_file.h"

#include <cmath>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"

namespace pentatron::families {
namespace {

constexpr std::int64_t kLargest = 1'000'000'000;

std::string shown(const Json* value) {
  return value == nullptr ? "missing" : quoted_for_message(dump_json(*value));
}

}  // namespace

const Json* ConfigFile::find(std::string_view key) const {
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

const Json& ConfigFile::at(std::string_view key) const {
  const Json* value = find(key);
  PENTATRON_CHECK(value != nullptr, kData, "{}: the key '{}' is missing", path_, key);
  return *value;
}

std::int64_t ConfigFile::integer(std::string_view key, std::int64_t least) const {
  const Json& value = at(key);
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  PENTATRON_CHECK(
      number >= static_cast<double>(least) && number <= kLargest && number == std::floor(number),
      kData, "{}: '{}' is {}, expected an integer from {} to {}", path_, key, shown(&value), least,
      kLargest);
  return static_cast<std::int64_t>(number);
}

double ConfigFile::number(std::string_view key) const {
  const Json& value = at(key);
  PENTATRON_CHECK(value.is_number() && std::isfinite(value.get<double>()), kData,
                  "{}: '{}' is {}, expected a number", path_, key, shown(&value));
  return value.get<double>();
}

bool ConfigFile::flag(std::string_view key) const {
  const Json& value = at(key);
  PENTATRON_CHECK(value.is_boolean(), kData, "{}: '{}' is {}, expected true or false", path_, key,
                  shown(&value));
  return value.get<bool>();
}

std::string ConfigFile::text(std::string_view key) const {
  const Json& value = at(key);
  PENTATRON_CHECK(value.is_string(), kData, "{}: '{}' is {}, expected a text", path_, key,
                  shown(&value));
  return value.get<std::string>();
}

void ConfigFile::refuse(std::string_view key, std::string_view expected) const {
  PENTATRON_THROW(kUnsupported, "{}: '{}' is {}, expected {}", path_, key, shown(find(key)),
                  expected);
}

}  // namespace pentatron::families
