// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/base/safetensors.cc pentatron/base/file.cc pentatron/base/stop_cleanup.cc pentatron/base/fault.cc
// sources: pentatron/base/env.cc pentatron/base/error.cc pentatron/base/format.cc
// sources: pentatron/base/screen.cc pentatron/base/terminal.cc pentatron/base/mapping_faults.cc
// libs: fmt
// clang-format on
//
// Any bytes: the reader returns a header whose every entry lies inside the file, or throws Error.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Half of the inputs get a true length word, or nearly all would end at that first check.
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size > 9 && data[8] == '{') {
    const std::uint64_t length = data[0] % 2 == 0 ? size - 8 : (size - 8) * 3 / 4;
    std::memcpy(file.data(), &length, sizeof(length));
  }
  try {
    const auto header = pentatron::parse_safetensors(
        std::as_bytes(std::span<const char>(file.data(), file.size())), "fuzz");
    std::uint64_t total = 0;
    for (const auto& [name, entry] : header.entries) {
      if (entry.begin > entry.end || header.data_offset + entry.end > file.size()) std::abort();
      total += entry.end - entry.begin;
    }
    if (header.data_offset + total != file.size()) std::abort();
  } catch (const pentatron::Error& error) {
    if (error.kind() != pentatron::ErrorKind::kData) std::abort();
  }
  return 0;
}
