// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/tensor.h"

#include "pentatron/base/error.h"

namespace pentatron::tensor {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::string_view safetensors;
};

constexpr DTypeRow kDTypes[] = {
    {DType::Double, "fp64", "F64"},
    {DType::Float, "fp32", "F32"},
    {DType::BFloat16, "bf16", "BF16"},
    {DType::Half, "fp16", "F16"},
    {DType::Float8_e4m3fn, "fp8_e4m3", "F8_E4M3"},
    {DType::Float8_e5m2, "fp8_e5m2", "F8_E5M2"},
    {DType::Long, "int64", "I64"},
    {DType::Int, "int32", "I32"},
    {DType::Short, "int16", "I16"},
    {DType::Char, "int8", "I8"},
    {DType::Byte, "uint8", "U8"},
    {DType::Bool, "bool", "BOOL"},
};

const DTypeRow& row_of(DType dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == dtype) return row;
  }
  PENTATRON_THROW(kInternal, "dtype number {} has no name here", static_cast<int>(dtype));
}

}  // namespace

std::string_view dtype_name(DType dtype) { return row_of(dtype).name; }

DType parse_dtype(std::string_view name) {
  std::string known;
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  PENTATRON_THROW(kConfig, "unknown dtype '{}'; known: {}", name, known);
}

std::string_view safetensors_dtype(DType dtype) { return row_of(dtype).safetensors; }

DType from_safetensors_dtype(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.safetensors == name) return row.dtype;
  }
  PENTATRON_THROW(kData, "safetensors dtype '{}' is not supported", name);
}

std::int64_t item_bytes(DType dtype) { return static_cast<std::int64_t>(c10::elementSize(dtype)); }

std::string describe(const Tensor& t) {
  if (!t.defined()) return "undefined";
  std::string text(dtype_name(t.scalar_type()));
  text += '[';
  for (std::int64_t d = 0; d < t.dim(); ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(t.size(d));
  }
  return text + ']';
}

Shape shape_of(const Tensor& t) { return t.sizes().vec(); }

std::int64_t num_elements(const Shape& shape) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) {
    PENTATRON_CHECK(size >= 0, kData, "a shape has the negative size {}", size);
    PENTATRON_CHECK(!__builtin_mul_overflow(product, size, &product), kData,
                    "a shape has more than 2^63 elements");
  }
  return product;
}

}  // namespace pentatron::tensor
