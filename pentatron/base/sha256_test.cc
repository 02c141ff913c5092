// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pentatron/base/hash_kernels.h"

namespace pentatron {
namespace {

std::string pattern(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 7 + 3) & 255);
  return text;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(BaseSha256, PublishedVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(BaseSha256, AllLengthsAroundTheBlocks) {
  // Expected: Python's hashlib over the digests of the first 0 to 199 bytes of the pattern.
  const std::string text = pattern(200);
  Sha256 all;
  for (std::size_t n = 0; n < 200; ++n) all.update(from_hex(sha256_hex(text.substr(0, n))));
  EXPECT_EQ(all.hex_digest(), "615d67a99b8c846e1f0582dfe127019e93c33a66e89ced6a4f81f932c82ece87");
}

TEST(BaseSha256, PiecesOfAnySizeGiveTheSameDigest) {
  const std::string text = pattern(1000);
  const std::string whole = sha256_hex(text);
  for (std::size_t piece = 1; piece < 150; ++piece) {
    Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += piece) hash.update(text.substr(at, piece));
    ASSERT_EQ(hash.hex_digest(), whole) << piece;
  }
}

TEST(BaseMd5, PublishedVectors) {
  EXPECT_EQ(md5_hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5_hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(md5_hex(std::string(1'000'000, 'a')), "7707d6ae4e027c70eea2a935c2296f21");
  // Expected: Python's hashlib over the digests of the first 0 to 199 bytes of the pattern.
  const std::string text = pattern(200);
  std::string all;
  for (std::size_t n = 0; n < 200; ++n) all += from_hex(md5_hex(text.substr(0, n)));
  EXPECT_EQ(md5_hex(all), "ae04544ff84793b0d135abf0525f8774");
}

std::uint32_t crc_of(const std::string& text, std::uint32_t crc = 0) {
  return crc32c(std::as_bytes(std::span<const char>(text.data(), text.size())), crc);
}

TEST(BaseCrc32c, PublishedVectors) {
  EXPECT_EQ(crc_of(""), 0U);
  EXPECT_EQ(crc_of("123456789"), 0xe3069283U);
  // RFC 3720, B.4.
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising(32, '\0');
  for (std::size_t i = 0; i < 32; ++i) rising[i] = static_cast<char>(i);
  EXPECT_EQ(crc_of(rising), 0x46dd794eU);
}

TEST(BaseCrc32c, ChainsAndNativeEqualsPortable) {
  const std::string text = pattern(300);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    ASSERT_EQ(crc_of(text.substr(cut), crc_of(text.substr(0, cut))), crc_of(text));
  }
  const auto native = hash_kernels::crc32c_native();
  if (native == nullptr) GTEST_SKIP() << "this CPU has no CRC-32C instruction";
  const auto* data = reinterpret_cast<const std::uint8_t*>(text.data());
  for (std::size_t size = 0; size < 200; ++size) {
    for (std::size_t shift = 0; shift < 8; ++shift) {
      ASSERT_EQ(native(0x12345678, data + shift, size),
                hash_kernels::crc32c_portable(0x12345678, data + shift, size));
    }
  }
}

}  // namespace
}  // namespace pentatron
