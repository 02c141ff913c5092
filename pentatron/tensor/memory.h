// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// CPU allocator statistics through a hook in the library's allocator; used by tests of peak memory
// and the memory report.
namespace pentatron::tensor {

// Counts bytes that the library allocates on the CPU, in the whole process, while it lives. One at
// a time: a second is a kInternal error.
class MemoryMeter final {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  void reset_peak();
  [[nodiscard]] std::int64_t current_bytes() const;       // since construction
  [[nodiscard]] std::int64_t peak_bytes() const;          // since construction or reset_peak
  [[nodiscard]] std::int64_t largest_allocation() const;  // bytes, since construction
  [[nodiscard]] std::int64_t num_blocks() const;          // allocated and not yet freed

  // Counts from here on the blocks that tensors of this many bytes (rounded up to 64) lie in.
  void watch_blocks_of(std::int64_t bytes);
  [[nodiscard]] std::int64_t peak_watched_blocks()
      const;  // that lived at once, of those made since
};

// Resident set of this process in bytes (/proc/self/statm). kIo where there is no /proc, here and
// below.
[[nodiscard]] std::int64_t resident_bytes();
// Its largest value so far, in bytes (/proc/self/status, VmHWM).
[[nodiscard]] std::int64_t peak_resident_bytes();

}  // namespace pentatron::tensor
