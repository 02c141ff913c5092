// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/cyclic_source.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

// Below it the library draws 32 bits a place, forwards; from it on 64, inside out.
constexpr std::int64_t kFewPlaces = std::numeric_limits<std::uint32_t>::max() / 20;

template <typename T>
IntegerArray permutation(std::int64_t size, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<T> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), T{0});
  const auto count = static_cast<std::uint64_t>(size);
  if (size < kFewPlaces) {
    for (std::uint64_t i = 0; i + 1 < count; ++i) {
      std::swap(order[i], order[i + static_cast<std::uint32_t>(engine()) % (count - i)]);
    }
    return IntegerArray(std::move(order));
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t high = engine();
    const std::uint64_t low = engine();
    std::swap(order[i], order[((high << 32) | low) % (i + 1)]);
  }
  return IntegerArray(std::move(order));
}

}  // namespace

IntegerArray torch_permutation(std::int64_t size, std::uint32_t seed) {
  PENTATRON_CHECK(size >= 0, kInternal, "a permutation of {}", size);
  return size <= std::numeric_limits<std::uint32_t>::max() ? permutation<std::uint32_t>(size, seed)
                                                           : permutation<std::int64_t>(size, seed);
}

CyclicSource::CyclicSource(std::unique_ptr<SampleSource> source)
    : source_(std::move(source)), order_(torch_permutation(source_->num_samples(), 0)) {}

std::int64_t CyclicSource::place(std::int64_t i) const {
  PENTATRON_CHECK(i >= 0 && i < num_samples(), kInternal, "sample {} of {}", i, num_samples());
  return order_[i];
}

std::int64_t CyclicSource::length(std::int64_t i) const { return source_->length(place(i)); }

Sample CyclicSource::sample(std::int64_t i) const { return source_->sample(place(i)); }

std::string CyclicSource::identity() const {
  const nlohmann::json json = {
      {"loader", "cyclic"}, {"samples", num_samples()}, {"source", source_->identity()}};
  return json.dump();
}

}  // namespace pentatron::datasets
