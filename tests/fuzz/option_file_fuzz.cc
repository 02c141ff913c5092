// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/config/option_file.cc pentatron/base/json.cc pentatron/base/format.cc pentatron/base/error.cc pentatron/base/env.cc pentatron/base/file.cc pentatron/base/stop_cleanup.cc pentatron/base/fault.cc
// sources: pentatron/base/screen.cc pentatron/base/terminal.cc pentatron/base/mapping_faults.cc
// libs: yaml-cpp fmt
// max_len: 4096
// clang-format on
//
// The first byte chooses: even YAML, odd JSON. Any text: a bounded list of values, or an Error of
// kind config or data. The YAML library takes 2 ms for a KiB under the sanitizers, so inputs are
// short; the limits on long ones are tests of config_test.
#include <cstdint>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/config/option_file.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

namespace {

using pentatron::config::FileValue;

constexpr std::size_t kMaxValues = 10'000;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const bool is_json = bytes[0] % 2 == 1;
  try {
    const std::vector<FileValue> values =
        is_json ? pentatron::config::parse_json_options(text, "options")
                : pentatron::config::parse_yaml_options(text, "options");
    require(values.size() <= kMaxValues);
    std::size_t num_words = 0;
    for (const FileValue& value : values) {
      num_words += value.words.size();
      require(!value.is_null || value.words.empty());
      require(value.is_null || value.is_list || value.words.size() == 1);
      require(is_json || value.line >= 1);
    }
    require(num_words <= kMaxValues || is_json);
  } catch (const pentatron::Error& error) {
    require(error.kind() == pentatron::ErrorKind::kConfig ||
            error.kind() == pentatron::ErrorKind::kData);
  }
  return 0;
}
