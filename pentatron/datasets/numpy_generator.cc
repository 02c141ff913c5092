// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/numpy_generator.h"

#include <array>
#include <bit>
#include <cstddef>
#include <limits>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

// Each word is whitened with a running constant, so that equal words hash differently by place.
class RunningHash final {
 public:
  RunningHash(std::uint32_t constant, std::uint32_t factor)
      : constant_(constant), factor_(factor) {}
  [[nodiscard]] std::uint32_t operator()(std::uint32_t word) {
    word ^= constant_;
    constant_ *= factor_;
    word *= constant_;
    return word ^ (word >> 16);
  }

 private:
  std::uint32_t constant_;
  std::uint32_t factor_;
};

std::uint32_t mix(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t word = 0xca01f9ddU * a - 0x4973f715U * b;
  return word ^ (word >> 16);
}

// SeedSequence(seed).generate_state(4, uint64).
std::array<std::uint64_t, 4> seed_words(std::uint64_t seed) {
  // A seed below 2^32 is one word for NumPy; the missing ones count as 0, as does a high half of 0.
  std::array<std::uint32_t, 4> pool = {static_cast<std::uint32_t>(seed),
                                       static_cast<std::uint32_t>(seed >> 32), 0, 0};
  RunningHash in(0x43b0d7e5U, 0x931e8875U);
  for (std::uint32_t& word : pool) word = in(word);
  for (std::size_t from = 0; from < pool.size(); ++from) {
    for (std::size_t to = 0; to < pool.size(); ++to) {
      if (from != to) pool[to] = mix(pool[to], in(pool[from]));
    }
  }
  RunningHash out(0x8b51f9ddU, 0x58f38dedU);
  std::array<std::uint64_t, 4> words{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t low = out(pool[(2 * i) % pool.size()]);
    const std::uint64_t high = out(pool[(2 * i + 1) % pool.size()]);
    words[i] = (high << 32) | low;
  }
  return words;
}

__uint128_t join(std::uint64_t high, std::uint64_t low) {
  return (static_cast<__uint128_t>(high) << 64) | low;
}

}  // namespace

NumpyGenerator::NumpyGenerator(std::uint64_t seed) {
  const std::array<std::uint64_t, 4> words = seed_words(seed);
  increment_ = (join(words[2], words[3]) << 1) | 1U;
  step();
  state_ += join(words[0], words[1]);
  step();
}

void NumpyGenerator::step() {
  state_ = state_ * join(0x2360ed051fc65da4U, 0x4385df649fccf645U) + increment_;
}

std::uint64_t NumpyGenerator::next64() {
  step();
  const auto high = static_cast<std::uint64_t>(state_ >> 64);
  const auto low = static_cast<std::uint64_t>(state_);
  return std::rotr(high ^ low, static_cast<int>(high >> 58));
}

std::uint32_t NumpyGenerator::next32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const std::uint64_t both = next64();
  has_half_ = true;
  half_ = static_cast<std::uint32_t>(both >> 32);
  return static_cast<std::uint32_t>(both);
}

std::int64_t NumpyGenerator::integer(std::int64_t low, std::int64_t high) {
  PENTATRON_CHECK(low < high, kInternal, "a random integer from {} to below {}", low, high);
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  PENTATRON_CHECK(range <= std::numeric_limits<std::uint32_t>::max(), kInternal,
                  "a random integer from {} to below {}: the range is too wide", low, high);
  if (range == 1) return low;  // draws nothing, as NumPy
  const auto width = static_cast<std::uint32_t>(range);
  const std::uint32_t refused = -width % width;  // 2^32 mod width: these low halves are uneven
  std::uint64_t product = 0;
  do {
    product = static_cast<std::uint64_t>(next32()) * width;
  } while (static_cast<std::uint32_t>(product) < refused);
  return low + static_cast<std::int64_t>(product >> 32);
}

}  // namespace pentatron::datasets
