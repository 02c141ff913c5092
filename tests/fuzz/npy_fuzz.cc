// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/base/npy.cc pentatron/base/file.cc pentatron/base/stop_cleanup.cc pentatron/base/fault.cc
// sources: pentatron/base/env.cc pentatron/base/error.cc pentatron/base/format.cc
// sources: pentatron/base/screen.cc pentatron/base/terminal.cc pentatron/base/mapping_faults.cc
// libs: fmt
// clang-format on
//
// Any bytes: the reader returns a header that fits the file exactly, or throws Error.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/npy.h"

namespace {

void read(const std::string& file) {
  try {
    const auto header = pentatron::parse_npy(
        std::as_bytes(std::span<const char>(file.data(), file.size())), "fuzz");
    const std::uint64_t bytes = header.num_values * pentatron::npy_item_bytes(header.type);
    if (header.data_offset + bytes != file.size()) std::abort();
    // What was accepted can be written again.
    if (pentatron::make_npy_header(header.type, header.shape).size() % 64 != 0) std::abort();
  } catch (const pentatron::Error& error) {
    if (error.kind() != pentatron::ErrorKind::kData) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  read(input);
  // The same bytes as the dict of a well-formed prefix, with 16 bytes of data behind.
  if (size < 0x10000) {
    std::string file("\x93NUMPY\x01\x00", 8);
    file += static_cast<char>(size & 0xff);
    file += static_cast<char>(size >> 8);
    read(file + input + std::string(16, 'd'));
  }
  return 0;
}
