// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "pentatron/bench/power_sampler.h"
#include "pentatron/tensor/tensor.h"

// What a device can do at most in the pieces that a training step is made of: copies, products and
// attention, each alone.
namespace pentatron::bench {

// Bytes a second, read and written counted, of a copy of `bytes` inside the device's memory.
[[nodiscard]] double copy_rate(Device device, std::int64_t bytes);

// y [rows, outputs] = x [rows, inputs] W^T: a linear map as a step runs it.
struct ProductShape {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;

  // Of one of its three products: a multiplication and an addition each.
  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(outputs) *
           static_cast<double>(inputs);
  }
};
// Seconds; the weight's gradient is added into an fp32 buffer.
struct ProductTimes {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  [[nodiscard]] double total() const { return forward + input_gradient + weight_gradient; }
};
// Operands as they come, or in fp8 already: e4m3 and output gradients e5m2 with one scale each, or
// all e4m3 with scales of blocks (tensor/fp8_blockwise.h).
enum class Operands { kCompute, kFp8, kFp8Blocks };
// On random values.
[[nodiscard]] ProductTimes time_products(Device device, const ProductShape& shape, DType dtype,
                                         Operands operands = Operands::kCompute);

// Causal self-attention of `samples` sequences of `length` tokens each.
struct AttentionShape {
  std::string name;
  std::int64_t samples = 0, length = 0;
  std::int64_t heads = 0, groups = 0, head_dim = 0;

  // Of forward, the half below the diagonal; backward has five products where forward has two.
  [[nodiscard]] double forward_flops() const;
  [[nodiscard]] double backward_flops() const { return 2.5 * forward_flops(); }
};
struct AttentionTimes {
  double forward = 0;  // seconds
  double backward = 0;
};
[[nodiscard]] AttentionTimes time_attention(Device device, const AttentionShape& shape,
                                            DType dtype);

// Prints the table as it is measured. Of a GPU in bf16 and fp8 at the shapes of Llama 3 8B; of a
// CPU in fp32 at small ones.
struct Ceilings {
  double copy_bytes_per_second = 0;  // of the largest copy
};
[[nodiscard]] Ceilings measure_ceilings(Device device, const PowerSampler* power,
                                        nlohmann::json& out);

}  // namespace pentatron::bench
