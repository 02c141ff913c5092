// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace pentatron::datasets {

// NumPy's legacy RandomState(seed): MT19937 with the scalar seeding of the original authors,
// shuffle() as Fisher-Yates from the end with masked rejection, binomial() by inversion. The order
// of the training data rests on it, so it equals NumPy's draw for draw.
class NumpyRandomState final {
 public:
  // `seed` must be in [0, 2^32); else ErrorKind::kConfig (NumPy refuses it too).
  explicit NumpyRandomState(std::int64_t seed);

  // Uniform integer in [0, max], max included.
  [[nodiscard]] std::uint64_t random_interval(std::uint64_t max);

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
  // Uniform in [0, 1) of 53 bits.
  [[nodiscard]] double random_double();

  std::mt19937 engine_;
};

}  // namespace pentatron::datasets
