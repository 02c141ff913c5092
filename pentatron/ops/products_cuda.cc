// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/products.h"

#include "pentatron/base/error.h"
#include "pentatron/kernels/fp8.h"
#include "pentatron/ops/cuda_ops.h"
#include "pentatron/tensor/cublas_lt.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

bool one_scale(const tensor::Fp8Tensor& a, const tensor::Fp8Tensor& b) {
  return a.block == tensor::ScaleBlock{} && b.block == tensor::ScaleBlock{};
}

// What the fused kernels cast; else the library's operations do.
bool kernel_casts(const Tensor& x_mk, const tensor::Fp8Request& request) {
  return x_mk.dim() == 2 && x_mk.numel() > 0 && x_mk.size(1) % tensor::kFp8Step == 0 &&
         request.block == tensor::ScaleBlock{};
}

DType fp8_dtype(tensor::Fp8Format format) {
  return format == tensor::Fp8Format::kE4M3 ? DType::Float8_e4m3fn : DType::Float8_e5m2;
}

}  // namespace

Tensor cuda::product_forward(const ForwardProduct& in) {
  if (in.recipe.numbers != Numbers::kFp8) return library_products::forward(in);
  const tensor::Fp8Tensor weight = fp8_payload(in.weight);
  if (!one_scale(in.x_fp8_ti, weight)) return library_products::forward(in);
  Tensor y_to = tensor::empty({in.x_ti.size(0), weight.data.size(0)}, in.out, in.x_ti.device());
  // The library adds a bias of the output's dtype alone.
  const bool epilogue = in.bias_o.defined() && in.out == DType::BFloat16 &&
                        in.bias_o.scalar_type() == DType::BFloat16;
  tensor::fp8_product({.a_mk = in.x_fp8_ti,
                       .b_nk = weight,
                       .out_mn = y_to,
                       .bias_n = epilogue ? in.bias_o : Tensor(),
                       .fast_sums = true});
  if (in.bias_o.defined() && !epilogue) y_to.add_(in.bias_o);
  return y_to;
}

Tensor cuda::product_input_gradient(const InputGradient& in) {
  if (in.recipe.numbers != Numbers::kFp8) return library_products::input_gradient(in);
  const tensor::Fp8Tensor weight = fp8_payload(in.weight);
  if (!one_scale(in.dy_fp8_to, weight)) return library_products::input_gradient(in);
  Tensor dx_ti = tensor::empty({in.dy_fp8_to.data.size(0), weight.data.size(0)}, in.out,
                               in.dy_fp8_to.data.device());
  tensor::fp8_product({.a_mk = in.dy_fp8_to, .b_nk = weight, .out_mn = dx_ti});
  return dx_ti;
}

void cuda::product_weight_gradient(const WeightGradient& in) {
  if (!in.dy_fp8_ot.data.defined()) {
    library_products::weight_gradient(in);
    return;
  }
  tensor::fp8_product({.a_mk = in.dy_fp8_ot,
                       .b_nk = in.x_fp8_it,
                       .out_mn = in.slot.buffer,
                       .accumulate = in.slot.accumulate});
}

tensor::Fp8Orders cuda::fp8_orders(const Tensor& x_mk, const tensor::Fp8Request& request) {
  if (!kernel_casts(x_mk, request)) return tensor::fp8_orders(x_mk, request);
  const Tensor x = x_mk.contiguous();
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const std::int64_t padded = (rows + tensor::kFp8Step - 1) / tensor::kFp8Step * tensor::kFp8Step;
  const DType dtype = fp8_dtype(request.format);
  // Two scalars, each at a multiple of 16 bytes as the products want them.
  const Tensor scalars = tensor::empty({8}, DType::Float, x.device());
  const Tensor scale = scalars.narrow(0, 0, 1).reshape({});
  const Tensor largest = scalars.narrow(0, 4, 1);
  tensor::Fp8Orders out;
  if (request.rows) {
    out.rows_mk = {.data = tensor::empty({rows, columns}, dtype, x.device()), .scale = scale};
  }
  if (request.columns) {
    out.columns_km = {.data = tensor::empty({columns, padded}, dtype, x.device()), .scale = scale};
  }
  const kernels::Type type = tensor::kernel_type(x.scalar_type());
  const auto* known = static_cast<const float*>(tensor::read(request.known));
  tensor::check_launch(kernels::launch_largest_magnitude(
                           tensor::read(x), type, x.numel(), known,
                           static_cast<float*>(tensor::write(largest)), tensor::stream_of(x)),
                       "largest magnitude");
  tensor::check_launch(
      kernels::launch_fp8_cast(
          {.x = tensor::read(x),
           .type = type,
           .rows = rows,
           .columns = columns,
           .format = request.format == tensor::Fp8Format::kE4M3 ? kernels::Fp8Kind::kE4M3
                                                                : kernels::Fp8Kind::kE5M2,
           .known = known,
           .largest = static_cast<const float*>(tensor::read(largest)),
           .seen = static_cast<double*>(tensor::write(request.seen)),
           .scale = static_cast<float*>(tensor::write(scale)),
           .rows_out = tensor::write(out.rows_mk.data),
           .columns_out = tensor::write(out.columns_km.data),
           .padded_rows = padded},
          tensor::stream_of(x)),
      "fp8 cast");
  return out;
}

}  // namespace pentatron::ops
