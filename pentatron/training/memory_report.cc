// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/memory_report.h"

#include <fmt/format.h>

#include "pentatron/tensor/device.h"

namespace pentatron::training {

MemoryStatistics memory_statistics(const Device& device, const tensor::MemoryMeter* meter) {
  if (!device.is_cpu()) {
    const tensor::DeviceMemory gpu = tensor::device_memory(device);
    return {.allocated = gpu.allocated,
            .max_allocated = gpu.peak_allocated,
            .reserved = gpu.reserved,
            .max_reserved = gpu.peak_reserved,
            .num_blocks = gpu.allocations};
  }
  MemoryStatistics memory{.reserved = tensor::resident_bytes(),
                          .max_reserved = tensor::peak_resident_bytes()};
  if (meter != nullptr) {
    memory.allocated = meter->current_bytes();
    memory.max_allocated = meter->peak_bytes();
    memory.num_blocks = meter->num_blocks();
  }
  return memory;
}

std::string format_memory_report(std::int64_t rank, std::int64_t iteration,
                                 const MemoryStatistics& memory) {
  const auto megabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return fmt::format(
      "[Rank {}] (after {} iterations) memory (MB) | allocated: {:.2f} | max allocated: {:.2f} | "
      "reserved: {:.2f} | max reserved: {:.2f}",
      rank, iteration, megabytes(memory.allocated), megabytes(memory.max_allocated),
      megabytes(memory.reserved), megabytes(memory.max_reserved));
}

}  // namespace pentatron::training
