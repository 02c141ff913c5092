// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/fp8.h"

#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/mm.h>

#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::tensor {
namespace {

constexpr std::int64_t kSizeStep = 16;

DType dtype_of(Fp8Format format) {
  return format == Fp8Format::kE4M3 ? DType::Float8_e4m3fn : DType::Float8_e5m2;
}
double largest_of(Fp8Format format) { return format == Fp8Format::kE4M3 ? 448.0 : 57344.0; }

}  // namespace

Fp8Tensor quantize_fp8(const Tensor& x, Fp8Format format) {
  const NoGrad no_grad;
  if (x.numel() == 0) {
    return {.data = empty(x.sizes(), dtype_of(format), x.device()),
            .scale = scalar(1.0, DType::Float, x.device())};
  }
  const double largest = largest_of(format);
  const Tensor wide = x.to(DType::Float).contiguous();
  const Tensor scale =
      wide.abs().max().mul(1.0 / largest).clamp_min(std::numeric_limits<float>::min()).contiguous();
  return {.data = wide.div(scale).clamp(-largest, largest).to(dtype_of(format)), .scale = scale};
}

Tensor dequantize_fp8(const Fp8Tensor& x, DType dtype) {
  return x.data.to(DType::Float).mul(x.scale).to(dtype);
}

Tensor fp8_matmul(const Fp8Tensor& a_mk, const Fp8Tensor& b_nk, DType out_dtype) {
  const Tensor &a = a_mk.data, &b = b_nk.data;
  PENTATRON_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(1) && a.is_contiguous() &&
                      b.is_contiguous() && a.size(1) % kSizeStep == 0 && b.size(0) % kSizeStep == 0,
                  kUnsupported, "fp8 product of {} and {}: sizes must be multiples of {}",
                  describe(a), describe(b), kSizeStep);
  PENTATRON_CHECK(
      a.scalar_type() == DType::Float8_e4m3fn || b.scalar_type() == DType::Float8_e4m3fn, kInternal,
      "fp8 product: one operand at most may be e5m2, got {} and {}", describe(a), describe(b));
  for (const Tensor& scale : {a_mk.scale, b_nk.scale}) {
    PENTATRON_CHECK(scale.scalar_type() == DType::Float && scale.numel() == 1 &&
                        reinterpret_cast<std::uintptr_t>(scale.const_data_ptr()) % 16 == 0,
                    kInternal, "fp8 product: the scale {} must be one aligned fp32 value",
                    describe(scale));
  }
  const NoGrad no_grad;
  if (a.size(0) == 0 || a.size(1) == 0) {
    return zeros({a.size(0), b.size(0)}, out_dtype, a.device());
  }
  if (a.is_cuda()) {
    return at::_scaled_mm(a, b.t(), a_mk.scale, b_nk.scale, /*bias=*/{}, /*scale_result=*/{},
                          out_dtype, /*use_fast_accum=*/false);
  }
  // fp8 values are exact in fp32; scales join at the end, as in the library.
  return at::mm(a.to(DType::Float), b.to(DType::Float).t())
      .mul(a_mk.scale.mul(b_nk.scale))
      .to(out_dtype);
}

}  // namespace pentatron::tensor
