// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "pentatron/tensor/device.h"

// What the CUDA half puts under tensor/device.h and device_queue.h.
namespace pentatron::tensor {

// A recorded step on one card (see StepGraph).
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void warm_up(const std::function<void()>& step) = 0;
  virtual void capture(const std::function<void()>& step) = 0;
  virtual void replay() = 0;
};

struct DeviceTable {
  // Starts the tensor library's CUDA side; called once, after the half is open.
  void (*start)() = nullptr;
  std::vector<CardInfo> (*cards)() = nullptr;
  CudaVersions (*versions)() = nullptr;
  // Is the calling thread's current stream being recorded?
  bool (*capturing)() = nullptr;
  std::unique_ptr<DeviceGraph> (*make_graph)(Device device) = nullptr;
};

// Called by the half while it is opened.
void register_device_table(const DeviceTable& table);
// The registered table; kUnsupported error that gives the half's reason when there is none.
[[nodiscard]] const DeviceTable& device_table();

// In the half: registers this room's table.
void register_cuda_device();

}  // namespace pentatron::tensor
