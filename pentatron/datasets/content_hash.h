// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace pentatron::datasets {

// How much of a token file is read to tell it from another of the same size.
enum class ContentHash {
  kSampled,  // 256 blocks of 4 KiB spread evenly, the first and the last among them; a file of up
             // to 1 MiB whole. Costs some milliseconds; misses a change between the blocks.
  kWhole,    // every byte
};

// Fills `out` with the bytes from `offset` on.
using ReadBytes = std::function<void(std::uint64_t offset, std::span<std::byte> out)>;

// SHA-256 (hexadecimal) over the size in bytes and the bytes that `how` asks for.
[[nodiscard]] std::string content_hash(std::uint64_t size, const ReadBytes& read, ContentHash how);

}  // namespace pentatron::datasets
