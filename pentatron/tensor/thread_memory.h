// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pentatron/tensor/tensor.h"

namespace pentatron::tensor {

// Bytes of the device that a rank holds, for differences: on the CPU what this thread allocated
// minus what it freed (ranks may be threads of one process), from the first MemoryMeter of the
// process on; on a GPU what the library's allocator has handed out there. The host's view: what the
// GPU still reads and the host has freed is not in it.
[[nodiscard]] std::int64_t held_bytes(Device device);

// The most of this thread's bytes on the CPU since reset_thread_peak(). Ranks that are threads
// reach their peaks at different times, so the process's peak is less than the sum of theirs.
void reset_thread_peak();
[[nodiscard]] std::int64_t thread_peak_bytes();

}  // namespace pentatron::tensor
