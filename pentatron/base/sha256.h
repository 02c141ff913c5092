// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pentatron {

// Streaming SHA-256 (FIPS 180-4).
class Sha256 final {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // Lower-case hexadecimal digest; the object may not be used afterwards.
  [[nodiscard]] std::string hex_digest();

 private:
  std::array<std::uint32_t, 8> state_;
  std::array<std::uint8_t, 64> buffer_{};
  std::size_t buffered_ = 0;
  std::uint64_t total_bytes_ = 0;
};

[[nodiscard]] std::string sha256_hex(std::string_view text);

// MD5 (RFC 1321), lower-case hexadecimal: only for Megatron's cache file names.
[[nodiscard]] std::string md5_hex(std::string_view text);

// CRC-32C (Castagnoli), as TensorBoard records and our manifests use it; `crc` chains.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

}  // namespace pentatron
