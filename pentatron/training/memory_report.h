// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/tensor.h"

namespace pentatron::training {

// Bytes of the device that a rank computes on. On the CPU: what the library's allocator handed out,
// and the resident set of the process (ranks that are threads of one process share both).
struct MemoryStatistics {
  std::int64_t allocated = 0;
  std::int64_t max_allocated = 0;
  std::int64_t reserved = 0;  // of the allocator's pool; CPU: resident
  std::int64_t max_reserved = 0;
  std::int64_t num_blocks = 0;
};

// The one place that asks. `meter`: of this process, null where there is none (allocated is then
// zero).
[[nodiscard]] MemoryStatistics memory_statistics(const Device& device,
                                                 const tensor::MemoryMeter* meter);

// "[Rank 0] (after 10 iterations) memory (MB) | allocated: 1.00 | max allocated: 2.00 | reserved:
// 3.00 | max reserved: 4.00"; a MB is 2^20 bytes, as Megatron's.
[[nodiscard]] std::string format_memory_report(std::int64_t rank, std::int64_t iteration,
                                               const MemoryStatistics& memory);

}  // namespace pentatron::training
