// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "pentatron/base/error.h"
#include "pentatron/base/hash_kernels.h"

namespace pentatron {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

// A digest of libcrypto's, from its first byte to its text.
class Digest final {
 public:
  explicit Digest(const EVP_MD* kind) : context_(EVP_MD_CTX_new()) {
    PENTATRON_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), kind, nullptr) == 1,
                    kInternal, "libcrypto has no {} here: its configuration switches it off",
                    EVP_MD_get0_name(kind));
  }
  void update(std::span<const std::byte> bytes) {
    PENTATRON_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, kInternal,
                    "libcrypto could not go on with a digest");
  }
  [[nodiscard]] std::string hex() {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    PENTATRON_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1, kInternal,
                    "libcrypto could not end a digest");
    std::string text;
    text.reserve(2UL * size);
    for (unsigned i = 0; i < size; ++i) {
      text.push_back(kDigits[digest.at(i) >> 4]);
      text.push_back(kDigits[digest.at(i) & 15]);
    }
    return text;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace

struct Sha256::State {
  Digest digest{EVP_sha256()};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) { state_->digest.update(bytes); }
void Sha256::update(std::string_view text) { update(bytes_of(text)); }
std::string Sha256::hex_digest() { return state_->digest.hex(); }

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex_digest();
}

std::string md5_hex(std::string_view text) {
  Digest digest(EVP_md5());
  digest.update(bytes_of(text));
  return digest.hex();
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
  static const hash_kernels::Crc32cBytes kNative = hash_kernels::crc32c_native();
  const auto run = kNative != nullptr ? kNative : &hash_kernels::crc32c_portable;
  return ~run(~crc, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace pentatron
