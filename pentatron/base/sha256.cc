// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/sha256.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "pentatron/base/hash_kernels.h"

namespace pentatron {
namespace {

using hash_kernels::kSha256BlockBytes;

void sha256_blocks(hash_kernels::Sha256State& state, const std::uint8_t* data, std::size_t count) {
  static const hash_kernels::Sha256Blocks native = hash_kernels::sha256_blocks_native();
  (native != nullptr ? native : &hash_kernels::sha256_blocks_portable)(state, data, count);
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

const std::uint8_t* octets(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

// RFC 1321, 3.4: T[i] = floor(2^32 * |sin(i + 1)|); 32 of a double's 53 bits are needed.
std::array<std::uint32_t, 64> make_md5_table() {
  std::array<std::uint32_t, 64> table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    const double value = std::abs(std::sin(static_cast<double>(i + 1)));
    table[i] = static_cast<std::uint32_t>(std::floor(value * 4294967296.0));
  }
  return table;
}

void md5_block(std::array<std::uint32_t, 4>& state, const std::uint8_t* data) {
  static const std::array<std::uint32_t, 64> table = make_md5_table();
  constexpr std::array<std::array<int, 4>, 4> kShifts = {
      {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};
  std::array<std::uint32_t, 16> words{};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t byte = 0; byte < 4; ++byte) {
      words[i] |= static_cast<std::uint32_t>(data[4 * i + byte]) << (8 * byte);
    }
  }
  auto [a, b, c, d] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t round = i / 16;
    std::uint32_t mixed = 0;
    std::size_t word = 0;
    switch (round) {
      case 0:
        mixed = (b & c) | (~b & d);
        word = i;
        break;
      case 1:
        mixed = (b & d) | (c & ~d);
        word = 5 * i + 1;
        break;
      case 2:
        mixed = b ^ c ^ d;
        word = 3 * i + 5;
        break;
      default:
        mixed = c ^ (b | ~d);
        word = 7 * i;
        break;
    }
    const std::uint32_t sum = a + mixed + table[i] + words[word % 16];
    const int shift = kShifts[round][i % 4];
    a = d;
    d = c;
    c = b;
    b += (sum << shift) | (sum >> (32 - shift));
  }
  state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d};
}

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::update(std::span<const std::byte> bytes) {
  total_bytes_ += bytes.size();
  if (buffered_ > 0) {
    const std::size_t count = std::min(bytes.size(), kSha256BlockBytes - buffered_);
    if (count > 0) std::memcpy(buffer_.data() + buffered_, bytes.data(), count);
    buffered_ += count;
    bytes = bytes.subspan(count);
    if (buffered_ < kSha256BlockBytes) return;
    sha256_blocks(state_, buffer_.data(), 1);
    buffered_ = 0;
  }
  const std::size_t blocks = bytes.size() / kSha256BlockBytes;
  sha256_blocks(state_, octets(bytes), blocks);
  bytes = bytes.subspan(blocks * kSha256BlockBytes);
  if (!bytes.empty()) std::memcpy(buffer_.data(), bytes.data(), bytes.size());
  buffered_ = bytes.size();
}

void Sha256::update(std::string_view text) { update(bytes_of(text)); }

std::string Sha256::hex_digest() {
  const std::uint64_t total_bits = total_bytes_ * 8;
  // A one bit, zeros up to 8 bytes before a block's end, the length in bits (big-endian).
  std::array<std::byte, 2 * kSha256BlockBytes> tail{};
  tail[0] = std::byte{0x80};
  const std::size_t used = (buffered_ + 1 + 8) % kSha256BlockBytes;
  std::size_t size = 1 + (used == 0 ? 0 : kSha256BlockBytes - used);
  for (int shift = 56; shift >= 0; shift -= 8) {
    tail[size++] = static_cast<std::byte>(total_bits >> shift & 0xff);
  }
  update(std::span<const std::byte>(tail.data(), size));
  std::array<std::uint8_t, 32> digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return to_hex(digest);
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex_digest();
}

std::string md5_hex(std::string_view text) {
  constexpr std::size_t kBlock = 64;
  std::array<std::uint32_t, 4> state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  const std::uint8_t* const data = octets(bytes_of(text));
  const std::size_t whole = text.size() / kBlock;
  for (std::size_t i = 0; i < whole; ++i) md5_block(state, data + i * kBlock);
  // As SHA-256's padding, but with the length little-endian.
  std::array<std::uint8_t, 2 * kBlock> tail{};
  const std::size_t rest = text.size() - whole * kBlock;
  if (rest > 0) std::memcpy(tail.data(), data + whole * kBlock, rest);
  tail[rest] = 0x80;
  const std::size_t tail_size = rest + 1 + 8 <= kBlock ? kBlock : 2 * kBlock;
  const std::uint64_t total_bits = static_cast<std::uint64_t>(text.size()) * 8;
  for (std::size_t i = 0; i < 8; ++i) {
    tail[tail_size - 8 + i] = static_cast<std::uint8_t>(total_bits >> (8 * i));
  }
  for (std::size_t at = 0; at < tail_size; at += kBlock) md5_block(state, tail.data() + at);
  std::array<std::uint8_t, 16> digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<std::uint8_t>(state[i / 4] >> (8 * (i % 4)));
  }
  return to_hex(digest);
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
  static const hash_kernels::Crc32cBytes native = hash_kernels::crc32c_native();
  const auto run = native != nullptr ? native : &hash_kernels::crc32c_portable;
  return ~run(~crc, octets(bytes), bytes.size());
}

}  // namespace pentatron
