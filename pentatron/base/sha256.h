// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace pentatron {

// Streaming SHA-256 (FIPS 180-4) by libcrypto.
class Sha256 final {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // Lower-case hexadecimal digest; the object may not be used afterwards.
  [[nodiscard]] std::string hex_digest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] std::string sha256_hex(std::string_view text);

// MD5 (RFC 1321), lower-case hexadecimal: only for Megatron's cache file names.
[[nodiscard]] std::string md5_hex(std::string_view text);

// CRC-32C (Castagnoli), as TensorBoard records and our manifests use it; `crc` chains.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

}  // namespace pentatron
