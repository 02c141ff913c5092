// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/device_trace.h"

#include "pentatron/tensor/device_table.h"

namespace pentatron::tensor {

std::unique_ptr<DeviceTrace> make_device_trace(Device device) {
  return device.is_cuda() ? device_table().make_trace() : nullptr;
}

}  // namespace pentatron::tensor
