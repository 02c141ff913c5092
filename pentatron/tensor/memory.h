// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// CPU allocator statistics through a hook in the library's allocator; used by tests of peak memory
// and the memory report.
namespace pentatron::tensor {

// Counts bytes allocated by the library on the calling process while it lives (one at a time).
class MemoryMeter final {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  void reset_peak();
  [[nodiscard]] std::int64_t current_bytes() const;  // since construction
  [[nodiscard]] std::int64_t peak_bytes() const;     // since construction or reset_peak
  [[nodiscard]] std::int64_t largest_allocation() const;
  [[nodiscard]] std::int64_t num_blocks() const;  // allocated and not yet freed
};

// Resident set of this process in bytes (/proc/self/statm).
[[nodiscard]] std::int64_t resident_bytes();
// Its largest value so far (/proc/self/status, VmHWM).
[[nodiscard]] std::int64_t peak_resident_bytes();

}  // namespace pentatron::tensor
