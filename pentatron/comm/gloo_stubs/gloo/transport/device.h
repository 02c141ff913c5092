// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace gloo::transport {
class Device {
 public:
  virtual ~Device() = 0;
};
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};
}  // namespace gloo::transport
