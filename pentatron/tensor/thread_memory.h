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

}  // namespace pentatron::tensor
