// SPDX-License-Identifier: Apache-2.0
#pragma once

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
    for (std::size_t i = values.size(); i-- > 1;) {
      std::swap(values[i], values[static_cast<std::size_t>(random_interval(i))]);
    }
  }

 private:
  std::mt19937 engine_;
};

}  // namespace pentatron::datasets
