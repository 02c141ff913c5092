// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Names of the tensor library that the rest of the project uses. Nothing above includes ATen/ops,
// autograd or c10d headers.
namespace pentatron {

using at::Tensor;
using DType = at::ScalarType;
using Device = at::Device;
// Made once: a device from a name is parsed at each call.
inline const Device kCpu(c10::DeviceType::CPU);
using IntList = at::IntArrayRef;
using Shape = std::vector<std::int64_t>;

namespace tensor {

// "fp64", "fp32", "bf16", "fp16", "int64", ... and back; an unknown name is a config error, a dtype
// without a name an internal one.
[[nodiscard]] std::string_view dtype_name(DType dtype);
[[nodiscard]] DType parse_dtype(std::string_view name);
// The safetensors spelling ("F32") and back; an unknown name is a data error.
[[nodiscard]] std::string_view safetensors_dtype(DType dtype);
[[nodiscard]] DType from_safetensors_dtype(std::string_view name);
[[nodiscard]] std::int64_t item_bytes(DType dtype);
[[nodiscard]] std::string describe(const Tensor& t);  // "bf16[4, 16]"
[[nodiscard]] Shape shape_of(const Tensor& t);
// Checked product; a negative size or more than 2^63 elements: data error.
[[nodiscard]] std::int64_t num_elements(const Shape& shape);

}  // namespace tensor
}  // namespace pentatron
