// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/datasets/indexed_dataset.cc pentatron/datasets/content_hash.cc pentatron/datasets/block_cache.cc pentatron/datasets/remote_file.cc pentatron/base/loaded_library.cc pentatron/base/error.cc pentatron/base/env.cc pentatron/base/file.cc pentatron/base/stop_cleanup.cc pentatron/base/fault.cc pentatron/base/sha256.cc pentatron/base/hash_kernels.cc
// sources: pentatron/base/screen.cc pentatron/base/terminal.cc pentatron/base/mapping_faults.cc
// libs: fmt crypto
// clang-format on
//
// Any bytes as an `.idx` file: refused with a data error, or every table entry lies inside the
// files.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "pentatron/base/error.h"
#include "pentatron/datasets/indexed_dataset.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

namespace {

template <typename T>
T load(const std::uint8_t* data, std::size_t at) {
  T value;
  std::memcpy(&value, data + at, sizeof(T));
  return value;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pentatron::datasets;
  // The first two bytes are the size of the .bin file, so that the fuzzer can make both agree.
  if (size < 2) return 0;
  const auto bin_size = static_cast<std::uint64_t>(load<std::uint16_t>(data, 0));
  data += 2;
  size -= 2;
  const std::span<const std::byte> index(reinterpret_cast<const std::byte*>(data), size);
  IndexHeader header;
  try {
    header = validate_index(index, bin_size, "fuzz.idx");
  } catch (const pentatron::Error& error) {
    require(error.kind() == pentatron::ErrorKind::kData);
    return 0;
  }
  const auto sequences = static_cast<std::size_t>(header.num_sequences);
  const auto entries = static_cast<std::size_t>(header.num_document_entries);
  require(kIndexHeaderBytes + 12 * sequences + 8 * entries <= size);
  for (std::size_t i = 0; i < sequences; ++i) {
    const auto length = load<std::int32_t>(data, kIndexHeaderBytes + 4 * i);
    const auto offset = load<std::int64_t>(data, kIndexHeaderBytes + 4 * sequences + 8 * i);
    require(length >= 0 && offset >= 0);
    require(static_cast<std::uint64_t>(offset) +
                static_cast<std::uint64_t>(length) *
                    static_cast<std::uint64_t>(byte_size(header.dtype)) <=
            bin_size);
  }
  for (std::size_t i = 0; i < entries; ++i) {
    const auto entry = load<std::int64_t>(data, kIndexHeaderBytes + 12 * sequences + 8 * i);
    require(entry >= 0 && entry <= header.num_sequences);
  }
  return 0;
}
