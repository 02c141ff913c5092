// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace pentatron::datasets {

// NumPy's legacy RandomState(seed): MT19937 with the scalar seeding of the original authors,
// shuffle() as Fisher-Yates from the end with masked rejection, binomial() and geometric() by
// inversion. The order of the training data rests on it, so it equals NumPy's draw for draw.
class NumpyRandomState final {
 public:
  // `seed` must be in [0, 2^32); else ErrorKind::kConfig (NumPy refuses it too).
  explicit NumpyRandomState(std::int64_t seed);

  // Uniform integer in [0, max], max included.
  [[nodiscard]] std::uint64_t random_interval(std::uint64_t max);

  // randint(low, high): uniform in [low, high). low < high.
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low +
           static_cast<std::int64_t>(random_interval(static_cast<std::uint64_t>(high - low - 1)));
  }

  // random(): uniform in [0, 1), of 53 bits.
  [[nodiscard]] double uniform();

  // geometric(probability), 1 or more, of a probability in (0, 1/3): NumPy draws others in another
  // way.
  [[nodiscard]] std::int64_t geometric(double probability);

  // choice(len(cdf), p=...): the place of a draw in the running sums of the probabilities, divided
  // by the last one.
  [[nodiscard]] std::size_t choice(std::span<const double> cdf);

  // binomial(1, probability): true with that probability, which must lie in [0, 1]. 0 draws
  // nothing.
  [[nodiscard]] bool happens(double probability);

  // The permutation does not depend on the element type.
  template <typename T>
  void shuffle(std::span<T> values) {
    if (values.size() < 2) return;
    // Places are drawn ahead of the swaps, so that they are on their way into the cache: arrays of
    // this kind are larger than it.
    constexpr std::size_t kAhead = 16;
    std::array<std::size_t, kAhead> drawn{};
    std::size_t next = values.size() - 1;  // whose partner is drawn next
    const auto draw = [&] {
      const auto place = static_cast<std::size_t>(random_interval(next));
      __builtin_prefetch(&values[place], 1);
      drawn[next-- % kAhead] = place;
    };
    while (next > 0 && values.size() - next <= kAhead) draw();
    for (std::size_t i = values.size(); i-- > 1;) {
      std::swap(values[i], values[drawn[i % kAhead]]);
      if (next > 0) draw();
    }
  }

 private:
  std::mt19937 engine_;
};

}  // namespace pentatron::datasets
