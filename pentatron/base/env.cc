// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/env.h"

#include <charconv>
#include <cstdlib>
#include <system_error>

#include "pentatron/base/error.h"

namespace pentatron {

std::optional<std::string> env_string(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::optional<std::int64_t> env_int(const char* name, std::int64_t min, std::int64_t max) {
  const std::optional<std::string> text = env_string(name);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, code] = std::from_chars(text->data(), end, value);
  PENTATRON_CHECK(code != std::errc::result_out_of_range, kConfig,
                  "environment variable {} is '{}', expected an integer from {} to {}", name, *text,
                  min, max);
  PENTATRON_CHECK(code == std::errc() && stop == end, kConfig,
                  "environment variable {} is '{}', expected an integer", name, *text);
  PENTATRON_CHECK(value >= min && value <= max, kConfig,
                  "environment variable {} is {}, expected an integer from {} to {}", name, value,
                  min, max);
  return value;
}

}  // namespace pentatron
