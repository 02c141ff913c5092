// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/shard_spec.h"

namespace pentatron::nn {

// A tensor of a module that no gradient trains (expert biases, running statistics, counters), with
// the same description of sharding as a parameter. A step changes it only when the optimizer step
// is committed. Checkpoints hold it under the kind "buffer/<part name>".
class Buffer final {
 public:
  // Zeros of spec.local_shape; any dtype. Internal error for an unsound spec.
  Buffer(std::string local_name, ShardSpec spec, DType dtype, Device device = kCpu);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] const std::string& local_name() const { return local_name_; }
  [[nodiscard]] const ShardSpec& spec() const { return spec_; }
  // Local shape; values are written through here and the storage stays where it is.
  [[nodiscard]] const Tensor& data() const { return data_; }
  // 1-D view of a part's real elements, row-major, without padding rows: what a checkpoint stores.
  [[nodiscard]] Tensor part_values(const ShardPart& part) const;

 private:
  std::string local_name_;
  ShardSpec spec_;
  Tensor data_;
};

}  // namespace pentatron::nn
