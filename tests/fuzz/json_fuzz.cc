// SPDX-License-Identifier: Apache-2.0
// sources: pentatron/base/json.cc pentatron/base/error.cc pentatron/base/format.cc
// libs: fmt
// Any text: a value that is read back equal after writing, or an Error.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  nlohmann::json value;
  try {
    value = pentatron::parse_json(text, "fuzz");
  } catch (const pentatron::Error& error) {
    if (error.kind() != pentatron::ErrorKind::kData) std::abort();
    return 0;
  }
  if (pentatron::parse_json(pentatron::dump_json(value), "again") != value) std::abort();
  return 0;
}
