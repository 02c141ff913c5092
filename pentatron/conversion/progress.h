// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "pentatron/base/timer.h"

namespace pentatron::conversion {

// Says every few seconds how much of a long copy is done.
class Progress final {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  void expect(std::int64_t bytes) { expected_ += bytes; }
  void add(std::int64_t bytes);

 private:
  std::string what_;
  std::int64_t expected_ = 0;
  std::int64_t done_ = 0;
  double told_ = 0.0;  // seconds
  Timer timer_;
};

}  // namespace pentatron::conversion
