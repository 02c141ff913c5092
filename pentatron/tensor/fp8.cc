// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/fp8.h"

#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>

#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::tensor {
namespace {

DType dtype_of(Fp8Format format) {
  return format == Fp8Format::kE4M3 ? DType::Float8_e4m3fn : DType::Float8_e5m2;
}
double largest_of(Fp8Format format) { return format == Fp8Format::kE4M3 ? 448.0 : 57344.0; }

// The blocks of a matrix, with sizes in place of "all".
struct Grid {
  std::int64_t rows, columns;              // of a block
  std::int64_t block_rows, block_columns;  // how many blocks
};
Grid grid_of(const Tensor& x_mn, ScaleBlock block) {
  const std::int64_t m = x_mn.size(0), n = x_mn.size(1);
  const std::int64_t rows = block.rows == 0 ? m : block.rows;
  const std::int64_t columns = block.columns == 0 ? n : block.columns;
  return {rows, columns, (m + rows - 1) / rows, (n + columns - 1) / columns};
}

// x in whole blocks, [block_rows, rows, block_columns, columns], zeros beyond the edges.
Tensor in_blocks(const Tensor& x_mn, const Grid& grid) {
  const std::int64_t more_rows = grid.block_rows * grid.rows - x_mn.size(0);
  const std::int64_t more_columns = grid.block_columns * grid.columns - x_mn.size(1);
  const Tensor padded = more_rows == 0 && more_columns == 0
                            ? x_mn
                            : at::constant_pad_nd(x_mn, {0, more_columns, 0, more_rows});
  return padded.reshape({grid.block_rows, grid.rows, grid.block_columns, grid.columns});
}

// The scale of every element.
Tensor spread(const Fp8Tensor& x) {
  if (x.block == ScaleBlock{}) return x.scale;
  const Grid grid = grid_of(x.data, x.block);
  return x.scale.repeat_interleave(grid.rows, 0)
      .repeat_interleave(grid.columns, 1)
      .narrow(0, 0, x.data.size(0))
      .narrow(1, 0, x.data.size(1));
}

Tensor scale_for(const Tensor& magnitude, double largest) {
  return magnitude.mul(1.0 / largest).clamp_min(std::numeric_limits<float>::min()).contiguous();
}

// The inverse of largest / magnitude without its mantissa bits, which is what TransformerEngine's
// Float8BlockScaling takes by default: a power of two, so that scaling rounds nothing. At least the
// smallest normal value (TransformerEngine: 1 for a block of zeros); NaN for what is not finite.
Tensor power_of_two_scale_for(const Tensor& magnitude, double largest) {
  constexpr std::int64_t kExponentBits = 0x7f800000;
  constexpr double kLargestInverse = 1.0 / std::numeric_limits<float>::min();
  const Tensor ratio = at::full_like(magnitude, largest).div(magnitude);
  const Tensor power = ratio.view(DType::Int).bitwise_and(kExponentBits).view(DType::Float);
  return power.clamp_max(kLargestInverse).add(magnitude.sub(magnitude)).reciprocal().contiguous();
}

// What is infinite becomes NaN, so that clipping does not hide it.
void write_data(Fp8Tensor& out, const Tensor& wide, Fp8Format format) {
  Fp8Tensor inverse = out;
  inverse.scale = out.scale.reciprocal();
  const Tensor scaled = wide.mul(spread(inverse));
  const double largest = largest_of(format);
  out.data =
      scaled.add(scaled.sub(scaled)).clamp(-largest, largest).to(dtype_of(format)).contiguous();
}

void check_scale(const Fp8Tensor& x) {
  const Tensor& scale = x.scale;
  bool fits = scale.scalar_type() == DType::Float &&
              reinterpret_cast<std::uintptr_t>(scale.const_data_ptr()) % 16 == 0;
  if (x.block == ScaleBlock{}) {
    fits = fits && scale.numel() == 1;
  } else if (x.data.numel() > 0) {
    const Grid grid = grid_of(x.data, x.block);
    fits = fits && scale.sizes() == IntList({grid.block_rows, grid.block_columns});
  }
  PENTATRON_CHECK(
      fits, kInternal,
      "fp8 product: the scale {} must be aligned fp32, one value for each block of {} x "
      "{} of {} (0: all)",
      describe(scale), x.block.rows, x.block.columns, describe(x.data));
}

}  // namespace

Fp8Tensor quantize_fp8(const Tensor& x, Fp8Format format, ScaleBlock block) {
  const NoGrad no_grad;
  if (x.numel() == 0) {
    return {.data = empty(x.sizes(), dtype_of(format), x.device()),
            .scale = scalar(1.0, DType::Float, x.device()),
            .block = {}};
  }
  const double largest = largest_of(format);
  const Tensor wide = x.to(DType::Float).contiguous();
  Fp8Tensor out{.data = wide, .scale = {}, .block = block};
  if (block == ScaleBlock{}) {
    out.scale = scale_for(wide.abs().max(), largest);
  } else {
    PENTATRON_CHECK(x.dim() == 2 && block.rows >= 0 && block.columns >= 0, kInternal,
                    "fp8 scales of blocks of {} x {} want a matrix, not {}", block.rows,
                    block.columns, describe(x));
    out.scale = power_of_two_scale_for(
        in_blocks(wide.abs(), grid_of(wide, block)).amax(IntList{1, 3}), largest);
  }
  write_data(out, wide, format);
  return out;
}

namespace {

// With the scale of the magnitude that is known, or of x's own.
Fp8Tensor quantize_delayed(const Tensor& x, const Fp8Request& request) {
  if (x.numel() == 0) return quantize_fp8(x, request.format);
  const Tensor wide = x.to(DType::Float).contiguous();
  const Tensor own = wide.abs().max();
  const Tensor magnitude = at::where(request.known.gt(0), request.known, own);
  Fp8Tensor out{.data = wide, .scale = scale_for(magnitude, largest_of(request.format))};
  write_data(out, wide, request.format);
  if (request.seen.defined()) {
    request.seen.copy_(request.seen.maximum(own.to(request.seen.scalar_type())));
  }
  return out;
}

}  // namespace

Fp8Orders fp8_orders(const Tensor& x_mk, const Fp8Request& request) {
  PENTATRON_CHECK(!request.known.defined() || request.block == ScaleBlock{}, kInternal,
                  "delayed scaling has one scale a tensor, not blocks of {} x {}",
                  request.block.rows, request.block.columns);
  const NoGrad no_grad;
  const std::int64_t behind = (kFp8Step - x_mk.size(0) % kFp8Step) % kFp8Step;
  // Blocks of one row lie along what is summed over, in either order.
  const bool apart = request.block.rows == 1;
  Fp8Orders out;
  if (request.columns && apart) {
    out.columns_km =
        quantize_fp8(at::constant_pad_nd(x_mk.t(), {0, behind}), request.format, request.block);
  }
  if (apart && !request.rows) return out;
  const Fp8Tensor rows = request.known.defined()
                             ? quantize_delayed(x_mk, request)
                             : quantize_fp8(x_mk, request.format, request.block);
  if (request.columns && !apart) {
    // The library pads no fp8 tensor; its bytes it does.
    const Tensor bytes_km = at::constant_pad_nd(rows.data.view(DType::Byte).t(), {0, behind});
    const bool one_scale = rows.block == ScaleBlock{};
    out.columns_km = {.data = bytes_km.contiguous().view(rows.data.scalar_type()),
                      .scale = one_scale ? rows.scale : rows.scale.t().contiguous(),
                      .block = {rows.block.columns, rows.block.rows}};
  }
  if (request.rows) out.rows_mk = rows;
  return out;
}

Tensor dequantize_fp8(const Fp8Tensor& x, DType dtype) {
  return x.data.to(DType::Float).mul(spread(x)).to(dtype);
}

Tensor fp8_matmul(const Fp8Tensor& a_mk, const Fp8Tensor& b_nk, DType out_dtype) {
  const Tensor &a = a_mk.data, &b = b_nk.data;
  PENTATRON_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(1) && a.is_contiguous() &&
                      b.is_contiguous() && a.size(1) % kFp8Step == 0 && b.size(0) % kFp8Step == 0,
                  kUnsupported, "fp8 product of {} and {}: sizes must be multiples of {}",
                  describe(a), describe(b), kFp8Step);
  PENTATRON_CHECK(
      a.scalar_type() == DType::Float8_e4m3fn || b.scalar_type() == DType::Float8_e4m3fn, kInternal,
      "fp8 product: one operand at most may be e5m2, got {} and {}", describe(a), describe(b));
  check_scale(a_mk);
  check_scale(b_nk);
  const NoGrad no_grad;
  if (a.size(0) == 0 || a.size(1) == 0) {
    return zeros({a.size(0), b.size(0)}, out_dtype, a.device());
  }
  const bool one_scale = a_mk.block == ScaleBlock{} && b_nk.block == ScaleBlock{};
  if (a.is_cuda()) {
    PENTATRON_CHECK(one_scale, kUnsupported,
                    "fp8 products on GPUs have one scale a tensor or those of --fp8-recipe "
                    "blockwise, not blocks of {} x {} and {} x {}",
                    a_mk.block.rows, a_mk.block.columns, b_nk.block.rows, b_nk.block.columns);
    return at::_scaled_mm(a, b.t(), a_mk.scale, b_nk.scale, /*bias=*/{}, /*scale_result=*/{},
                          out_dtype, /*use_fast_accum=*/false);
  }
  if (!one_scale) {
    return at::mm(dequantize_fp8(a_mk, DType::Float), dequantize_fp8(b_nk, DType::Float).t())
        .to(out_dtype);
  }
  // fp8 values are exact in fp32; scales join at the end, as in the library.
  return at::mm(a.to(DType::Float), b.to(DType::Float).t())
      .mul(a_mk.scale.mul(b_nk.scale))
      .to(out_dtype);
}

}  // namespace pentatron::tensor
