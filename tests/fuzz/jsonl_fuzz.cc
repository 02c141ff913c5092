// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/datasets/jsonl.cc pentatron/datasets/json_scanner.cc
// libs: simdjson fmt
// clang-format on
//
// Any bytes as a line of a JSONL corpus: a problem with a column inside the line, or valid texts
// for every key; the same when other bytes follow the line in its buffer.
#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "pentatron/datasets/jsonl.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pentatron::datasets;
  static JsonlParser parser({"a", "text"});
  static JsonlParser beside({"a", "text"});
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  if (is_blank(line)) return 0;
  const std::string twice = std::string(line) + std::string(line) + std::string(64, '0');
  const auto same = beside.parse(std::string_view(twice).substr(0, size), twice.size());
  const auto problem = parser.parse(line);
  require(problem.has_value() == same.has_value());
  require(problem ? problem->column == same->column && problem->message == same->message
                  : parser.texts() == beside.texts());
  if (problem) {
    require(problem->column >= 1 && problem->column <= static_cast<std::int64_t>(size) + 1);
    require(!problem->message.empty());
    return 0;
  }
  for (const auto& texts : parser.texts()) {
    for (const std::string_view text : texts) {
      require(simdjson::validate_utf8(text.data(), text.size()));
    }
  }
  return 0;
}
