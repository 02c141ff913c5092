// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/tensor/tensor.h"

namespace pentatron::tensor {

// A kernel, copy or fill that ran on a GPU. Nanoseconds since the Unix epoch.
struct DeviceSpan {
  std::string name;         // a kernel's C++ name without its parameter list, "copy to device", ...
  std::int64_t stream = 0;  // as CUDA numbers them
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t launched_ns = 0;  // when the host asked for it; 0: not known
  std::int64_t bytes = -1;       // of a copy or fill
};

// Records what the GPUs of this process run (CUPTI's activity records). One at a time in a process.
class DeviceTrace {
 public:
  virtual ~DeviceTrace() = default;
  // kCuda: the library CUPTI is not there, or another profiler holds it.
  virtual void start() = 0;
  // Waits for the GPU; what ran since start(), in the order of its beginning.
  [[nodiscard]] virtual std::vector<DeviceSpan> stop() = 0;
};

// Null on the CPU.
[[nodiscard]] std::unique_ptr<DeviceTrace> make_device_trace(Device device);

// In the CUDA library.
[[nodiscard]] std::unique_ptr<DeviceTrace> make_cuda_trace();

}  // namespace pentatron::tensor
