// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The inner loop of CRC-32C: in portable C++ and, where the CPU has it, with its own instruction.
// Private to base/; both give the same bits, and a test compares them.
namespace pentatron::hash_kernels {

// Advances a raw register (no inversion before or after) over `size` bytes.
using Crc32cBytes = std::uint32_t (*)(std::uint32_t crc, const std::uint8_t* data,
                                      std::size_t size);

[[nodiscard]] std::uint32_t crc32c_portable(std::uint32_t crc, const std::uint8_t* data,
                                            std::size_t size);
// By SSE4.2, or nullptr where the CPU has none.
[[nodiscard]] Crc32cBytes crc32c_native();

}  // namespace pentatron::hash_kernels
