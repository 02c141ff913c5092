// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "pentatron/tensor/tensor.h"

namespace pentatron::bench {

// Sizes of the tensors that the kernels work on.
struct KernelShapes {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t feed_forward = 0;  // of a gated mlp; a plain one has 4 times the hidden channels
  std::int64_t heads = 0, groups = 0, head_dim = 0;
  std::int64_t vocabulary = 0;
  std::int64_t parameters = 0;  // of an optimizer step, in kSegments segments
  DType dtype = DType::Float;
};
// One micro-batch of Llama 3 8B in bf16; on a CPU small ones in fp32.
[[nodiscard]] KernelShapes kernel_shapes(Device device);

// A function of the op table with the least bytes that it must read and write.
struct KernelCase {
  std::string name;
  double bytes = 0;
  double bar = 0;  // share of the copy rate that it is to reach; 0: reported only
  // Makes the tensors and gives the call to be timed.
  std::function<std::function<void()>()> prepare;
};
[[nodiscard]] std::vector<KernelCase> kernel_cases(Device device, const KernelShapes& shapes);

// Prints the table as it is measured; bars are those of a GPU.
void measure_kernels(Device device, double copy_bytes_per_second, nlohmann::json& out);

}  // namespace pentatron::bench
