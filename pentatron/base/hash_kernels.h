// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// The inner loops of the digests: each in portable C++ and, where the CPU has them, with its own
// instructions. Private to base/; portable and native forms give the same bits, and a test compares
// them.
namespace pentatron::hash_kernels {

inline constexpr std::size_t kSha256BlockBytes = 64;
using Sha256State = std::array<std::uint32_t, 8>;

// Advances `state` over `count` blocks of 64 bytes.
using Sha256Blocks = void (*)(Sha256State& state, const std::uint8_t* data, std::size_t count);
// Advances a raw register (no inversion before or after) over `size` bytes.
using Crc32cBytes = std::uint32_t (*)(std::uint32_t crc, const std::uint8_t* data,
                                      std::size_t size);

void sha256_blocks_portable(Sha256State& state, const std::uint8_t* data, std::size_t count);
[[nodiscard]] std::uint32_t crc32c_portable(std::uint32_t crc, const std::uint8_t* data,
                                            std::size_t size);

// The CPU's own instructions (SHA extensions, SSE4.2), or nullptr where it has none.
[[nodiscard]] Sha256Blocks sha256_blocks_native();
[[nodiscard]] Crc32cBytes crc32c_native();

}  // namespace pentatron::hash_kernels
