// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

// How much memory a test needs, whatever the tests before it needed.
namespace pentatron::datasets::testing {

// Peak of the process's resident memory since reset_peak().
inline std::int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}

// The peak is now what is resident; returns that.
inline std::int64_t reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
  return peak_bytes();
}

}  // namespace pentatron::datasets::testing
