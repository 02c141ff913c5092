// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "pentatron/datasets/sample.h"

namespace pentatron::datasets {

// Anything that yields samples by place in training order; const methods are safe from any number
// of threads.
class SampleSource {
 public:
  SampleSource() = default;
  virtual ~SampleSource() = default;
  SampleSource(const SampleSource&) = delete;
  SampleSource& operator=(const SampleSource&) = delete;

  [[nodiscard]] virtual std::int64_t num_samples() const = 0;
  // Rows of all sequences of sample i together, known without reading it: what plans pack by.
  [[nodiscard]] virtual std::int64_t length(std::int64_t i) const = 0;
  [[nodiscard]] virtual Sample sample(std::int64_t i) const = 0;
  // A text that differs when a sample or their order differs, and never holds a path: what a
  // resumed run is compared by. It may read all that decides the order.
  [[nodiscard]] virtual std::string identity() const = 0;
};

}  // namespace pentatron::datasets
