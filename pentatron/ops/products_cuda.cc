// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/products.h"

#include "pentatron/base/error.h"
#include "pentatron/kernels/fp8.h"
#include "pentatron/ops/cuda_ops.h"
#include "pentatron/tensor/cublas_lt.h"
#include "pentatron/tensor/fp8_blockwise.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/known_largest.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/views.h"

namespace pentatron::ops {
namespace {

bool one_scale(const tensor::Fp8Tensor& a, const tensor::Fp8Tensor& b) {
  return a.block == tensor::ScaleBlock{} && b.block == tensor::ScaleBlock{};
}

bool own_product(const tensor::Fp8Tensor& a, const tensor::Fp8Tensor& b) {
  return one_scale(a, b) || tensor::blockwise(a, b);
}

bool known_block(tensor::ScaleBlock block) {
  return block == tensor::kActivationBlock || block == tensor::kWeightBlock;
}

// What the fused kernels cast; else the library's operations do.
bool kernel_casts(const Tensor& x_mk, const tensor::Fp8Request& request) {
  return x_mk.dim() == 2 && x_mk.numel() > 0 && x_mk.size(1) % tensor::kFp8Step == 0 &&
         (request.block == tensor::ScaleBlock{} ||
          (known_block(request.block) && !request.known.defined()));
}

std::int64_t rounded_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }
std::int64_t blocks_of(std::int64_t n) { return (n + tensor::kFp8Block - 1) / tensor::kFp8Block; }

// Products with scales of blocks take whole steps of rows; the casts below leave zeros behind the
// rows that a tensor shows.
tensor::Fp8Tensor with_rows_behind(const tensor::Fp8Tensor& a_mk) {
  const std::int64_t m = a_mk.data.size(0), k = a_mk.data.size(1);
  const std::int64_t rows = rounded_up(m, tensor::kFp8Step);
  if (a_mk.block != tensor::kActivationBlock || rows == m) return a_mk;
  return {.data = a_mk.data.as_strided({rows, k}, {k, 1}),
          .scale = a_mk.scale.as_strided({rows, blocks_of(k)}, {1, rows}),
          .block = a_mk.block};
}

// a b^T of the two's products, with the rest of `in`.
Tensor product_of(tensor::Fp8Product in, DType out) {
  const std::int64_t rows = in.a_mk.data.size(0);
  in.a_mk = with_rows_behind(in.a_mk);
  in.out_mn =
      tensor::empty({in.a_mk.data.size(0), in.b_nk.data.size(0)}, out, in.a_mk.data.device());
  tensor::fp8_product(in);
  return in.out_mn.size(0) == rows ? in.out_mn : tensor::narrowed(in.out_mn, 0, 0, rows);
}

DType fp8_dtype(tensor::Fp8Format format) {
  return format == tensor::Fp8Format::kE4M3 ? DType::Float8_e4m3fn : DType::Float8_e5m2;
}
kernels::Fp8Kind kernel_format(tensor::Fp8Format format) {
  return format == tensor::Fp8Format::kE4M3 ? kernels::Fp8Kind::kE4M3 : kernels::Fp8Kind::kE5M2;
}

}  // namespace

Tensor cuda::product_forward(const ForwardProduct& in) {
  if (in.recipe.numbers != Numbers::kFp8) return library_products::forward(in);
  const tensor::Fp8Tensor weight = fp8_payload(in.weight);
  if (!own_product(in.x_fp8_ti, weight)) return library_products::forward(in);
  // The library adds a bias of the output's dtype alone, and under one scale a tensor.
  const bool epilogue = in.bias_o.defined() && in.out == DType::BFloat16 &&
                        in.bias_o.scalar_type() == DType::BFloat16 &&
                        one_scale(in.x_fp8_ti, weight);
  const Tensor y_to = product_of({.a_mk = in.x_fp8_ti,
                                  .b_nk = weight,
                                  .out_mn = {},
                                  .bias_n = epilogue ? in.bias_o : Tensor(),
                                  .fast_sums = true},
                                 in.out);
  if (in.bias_o.defined() && !epilogue) y_to.add_(in.bias_o);
  return y_to;
}

Tensor cuda::product_input_gradient(const InputGradient& in) {
  if (in.recipe.numbers != Numbers::kFp8) return library_products::input_gradient(in);
  const tensor::Fp8Tensor weight = fp8_payload(in.weight);
  if (!own_product(in.dy_fp8_to, weight)) return library_products::input_gradient(in);
  return product_of({.a_mk = in.dy_fp8_to, .b_nk = weight, .out_mn = {}}, in.out);
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

namespace {

// Scales in the order in which the products read them: of 128 values of a row side by side for all
// rows, of squares side by side along what is summed over, in steps of kScaleStep.
constexpr std::int64_t kScaleStep = 4;
Tensor block_scales(std::int64_t rows, std::int64_t columns, bool square, Device device) {
  if (!square) return tensor::empty({blocks_of(columns), rows}, DType::Float, device).t();
  return tensor::zeros({blocks_of(rows), rounded_up(blocks_of(columns), kScaleStep)}, DType::Float,
                       device)
      .narrow(1, 0, blocks_of(columns));
}

// What the kernel wants to know of block_scales().
std::int64_t step_of(const Tensor& scales, bool square) {
  return square ? scales.stride(0) : scales.size(0);
}

tensor::Fp8Orders block_orders(const Tensor& x, const tensor::Fp8Request& request) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const bool square = request.block == tensor::kWeightBlock;
  const std::int64_t padded = rounded_up(rows, tensor::kFp8Step);
  const std::int64_t stored = square ? rows : padded;
  const DType dtype = fp8_dtype(request.format);
  kernels::Fp8BlockCast cast{.x = tensor::read(x),
                             .type = tensor::kernel_type(x.scalar_type()),
                             .rows = rows,
                             .columns = columns,
                             .format = kernel_format(request.format),
                             .square = square,
                             .stored_rows = stored,
                             .padded_rows = padded};
  tensor::Fp8Orders out;
  if (request.rows) {
    const Tensor data = tensor::empty({stored, columns}, dtype, x.device());
    const Tensor scales = block_scales(stored, columns, square, x.device());
    cast.rows_out = tensor::write(data);
    cast.row_scales = static_cast<float*>(tensor::write(scales));
    cast.row_scale_step = step_of(scales, square);
    out.rows_mk = {.data = data.narrow(0, 0, rows),
                   .scale = scales.narrow(0, 0, square ? blocks_of(rows) : rows),
                   .block = request.block};
  }
  if (request.columns) {
    const Tensor scales = block_scales(columns, padded, square, x.device());
    out.columns_km = {.data = tensor::empty({columns, padded}, dtype, x.device()),
                      .scale = scales,
                      .block = request.block};
    cast.columns_out = tensor::write(out.columns_km.data);
    cast.column_scales = static_cast<float*>(tensor::write(scales));
    cast.column_scale_step = step_of(scales, square);
  }
  tensor::check_launch(kernels::launch_fp8_block_cast(cast, tensor::stream_of(x)),
                       "fp8 cast with scales of blocks");
  return out;
}

}  // namespace

tensor::Fp8Orders cuda::fp8_orders(const Tensor& x_mk, const tensor::Fp8Request& request) {
  if (!kernel_casts(x_mk, request)) return tensor::fp8_orders(x_mk, request);
  const Tensor x = x_mk.contiguous();
  if (known_block(request.block)) return block_orders(x, request);
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const std::int64_t padded = rounded_up(rows, tensor::kFp8Step);
  const DType dtype = fp8_dtype(request.format);
  // Two scalars, each at a multiple of 16 bytes as the products want them.
  const Tensor scalars = tensor::empty({8}, DType::Float, x.device());
  const Tensor scale = scalars.narrow(0, 0, 1).reshape({});
  const Tensor noted = tensor::noted_largest(x_mk);
  const Tensor largest = noted.defined() ? noted : scalars.narrow(0, 4, 1);
  tensor::Fp8Orders out;
  if (request.rows) {
    out.rows_mk = {.data = tensor::empty({rows, columns}, dtype, x.device()), .scale = scale};
  }
  if (request.columns) {
    out.columns_km = {.data = tensor::empty({columns, padded}, dtype, x.device()), .scale = scale};
  }
  const kernels::Type type = tensor::kernel_type(x.scalar_type());
  const auto* known = static_cast<const float*>(tensor::read(request.known));
  if (!noted.defined()) {
    tensor::check_launch(kernels::launch_largest_magnitude(
                             tensor::read(x), type, x.numel(), known,
                             static_cast<float*>(tensor::write(largest)), tensor::stream_of(x)),
                         "largest magnitude");
  }
  tensor::check_launch(
      kernels::launch_fp8_cast({.x = tensor::read(x),
                                .type = type,
                                .rows = rows,
                                .columns = columns,
                                .format = kernel_format(request.format),
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
