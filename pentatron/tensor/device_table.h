// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "pentatron/tensor/device.h"
#include "pentatron/tensor/device_trace.h"

// What the CUDA library puts under tensor/device.h and device_queue.h.
namespace pentatron::tensor {

// A recorded step on one GPU (see StepGraph).
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void warm_up(const std::function<void()>& step) = 0;
  // `shares`: another graph of the table whose memory this one uses, or null.
  virtual void capture(const std::function<void()>& step, const DeviceGraph* shares) = 0;
  virtual void replay() = 0;
};

struct DeviceTable {
  // Starts the tensor library's CUDA side; called once, after the CUDA library is open.
  void (*start)() = nullptr;
  std::vector<GpuInfo> (*gpus)() = nullptr;
  CudaVersions (*versions)() = nullptr;
  // Is the calling thread's current stream being recorded?
  bool (*capturing)() = nullptr;
  std::unique_ptr<DeviceGraph> (*make_graph)(Device device) = nullptr;
  std::unique_ptr<DeviceTrace> (*make_trace)() = nullptr;
};

// Called by the CUDA library while it is opened.
void register_device_table(const DeviceTable& table);
// The registered table; kUnsupported error that says why the CUDA library is not loaded.
[[nodiscard]] const DeviceTable& device_table();

// In the CUDA library: registers this module's table.
void register_cuda_device();

}  // namespace pentatron::tensor
