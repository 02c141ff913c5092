// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/content_hash.h"

#include <algorithm>
#include <vector>

#include "pentatron/base/sha256.h"

namespace pentatron::datasets {
namespace {

constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::uint64_t kBlocks = 256;
constexpr std::uint64_t kPieceBytes = 1 << 20;

}  // namespace

std::string content_hash(std::uint64_t size, const ReadBytes& read, ContentHash how) {
  Sha256 hash;
  hash.update("content " + std::to_string(size) + "\n");
  std::vector<std::byte> buffer;
  const auto add = [&](std::uint64_t offset, std::uint64_t bytes) {
    buffer.resize(bytes);
    read(offset, buffer);
    hash.update(buffer);
  };
  if (how == ContentHash::kWhole || size <= kBlocks * kBlockBytes) {
    for (std::uint64_t at = 0; at < size; at += kPieceBytes) {
      add(at, std::min(kPieceBytes, size - at));
    }
    return hash.hex_digest();
  }
  // Steps of whole and of remaining bytes apart, so that no product overflows.
  const std::uint64_t room = size - kBlockBytes;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    add(room / (kBlocks - 1) * i + room % (kBlocks - 1) * i / (kBlocks - 1), kBlockBytes);
  }
  return hash.hex_digest();
}

}  // namespace pentatron::datasets
