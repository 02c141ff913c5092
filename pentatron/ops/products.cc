// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/products.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/ops/cpu_ops.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/views.h"

namespace pentatron::ops {
namespace {

constexpr std::int64_t kRowBlocks = 16;
constexpr std::int64_t kLeastBlock = 64;  // rows of a block that are worth a product of their own
constexpr std::int64_t kWideBytes = 4;    // of an element in which sums are made

// All rows at once, or, `in_blocks`, in about kRowBlocks parts.
template <typename Body>
void for_row_blocks(std::int64_t rows, bool in_blocks, const Body& body) {
  const std::int64_t step = in_blocks ? std::max(kLeastBlock, (rows + kRowBlocks - 1) / kRowBlocks)
                                      : std::max<std::int64_t>(1, rows);
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    body(begin, std::min(step, rows - begin));
  }
}

// a_mk @ b_kn in `out` dtype; rows of a are cast to b's dtype. Copies in other dtypes are of a
// block of rows alone.
Tensor product(const Tensor& a_mk, const Tensor& b_kn, DType out) {
  const bool same = a_mk.scalar_type() == out && b_kn.scalar_type() == out;
  if (same && !tensor::widens_products(a_mk)) return tensor::matmul(a_mk, b_kn);
  Tensor c_mn = tensor::empty({a_mk.size(0), b_kn.size(1)}, out, a_mk.device());
  for_row_blocks(a_mk.size(0), /*in_blocks=*/true, [&](std::int64_t begin, std::int64_t size) {
    tensor::matmul_into(tensor::narrowed(c_mn, 0, begin, size),
                        tensor::cast(tensor::narrowed(a_mk, 0, begin, size), b_kn.scalar_type()),
                        b_kn, false);
  });
  return c_mn;
}

}  // namespace

tensor::Fp8Tensor fp8_payload(const WeightView& view) {
  PENTATRON_CHECK(view.scale.defined(), kInternal, "an fp8 product got the weight {} without scale",
                  tensor::describe(view.data));
  return {.data = view.data, .scale = view.scale, .block = view.block};
}

bool wants_largest(const Recipe& recipe) {
  return recipe.numbers == Numbers::kFp8 && recipe.activations == tensor::ScaleBlock{};
}

WeightFormat forward_format(const Recipe& recipe) {
  return {.numbers = recipe.numbers, .transposed = false, .block = recipe.weights};
}

WeightFormat backward_format(const Recipe& recipe) {
  if (recipe.numbers == Numbers::kCompute) return {};
  // The blocks of the transposed tensor are the transposed blocks.
  return {.numbers = recipe.numbers,
          .transposed = true,
          .block = {recipe.weights.columns, recipe.weights.rows}};
}

Tensor library_products::forward(const ForwardProduct& in) {
  const Tensor& w = in.weight.data;
  PENTATRON_CHECK(in.x_ti.dim() == 2 && w.dim() == 2 && in.x_ti.size(1) == w.size(1), kInternal,
                  "linear: input {} does not fit the weight {}", tensor::describe(in.x_ti),
                  tensor::describe(w));
  if (in.recipe.numbers == Numbers::kFp8) {
    Tensor y_to = tensor::fp8_matmul(in.x_fp8_ti, fp8_payload(in.weight), in.out);
    if (in.bias_o.defined()) y_to.add_(in.bias_o);
    return y_to;
  }
  const Tensor w_io = tensor::transposed(w);
  if (!in.bias_o.defined()) return product(in.x_ti, w_io, in.out);
  if (in.x_ti.scalar_type() == in.out) return tensor::matmul_bias(in.x_ti, w_io, in.bias_o);
  return product(in.x_ti, w_io, in.out).add_(in.bias_o);
}

Tensor library_products::input_gradient(const InputGradient& in) {
  if (in.recipe.numbers == Numbers::kFp8) {
    return tensor::fp8_matmul(in.dy_fp8_to, fp8_payload(in.weight), in.out);
  }
  return product(in.dy_to, in.weight.data, in.out);
}

void library_products::weight_gradient(const WeightGradient& in) {
  const GradSlot& slot = in.slot;
  if (in.dy_fp8_ot.data.defined()) {
    tensor::matmul_into(slot.buffer, tensor::dequantize_fp8(in.dy_fp8_ot, DType::Float),
                        tensor::transposed(tensor::dequantize_fp8(in.x_fp8_it, DType::Float)),
                        slot.accumulate);
    return;
  }
  const std::int64_t rows = in.x_ti.size(0);
  const DType dtype = in.x_ti.scalar_type();
  // On CPUs a slot of another dtype makes the product a wide one, whatever the processor has.
  const bool at_once = in.dy_to.scalar_type() == dtype && !tensor::widens_products(in.x_ti) &&
                       (in.x_ti.is_cuda() || slot.buffer.scalar_type() == dtype);
  if (rows == 0 || at_once) {
    tensor::matmul_into(slot.buffer, tensor::transposed(in.dy_to), in.x_ti, slot.accumulate);
    return;
  }
  // A slot of 16 bits takes the sum of all blocks, rounded once.
  const bool wide_sum = tensor::item_bytes(slot.buffer.scalar_type()) < kWideBytes;
  const Tensor sum = wide_sum
                         ? tensor::empty(slot.buffer.sizes(), DType::Float, slot.buffer.device())
                         : slot.buffer;
  for_row_blocks(rows, /*in_blocks=*/true, [&](std::int64_t begin, std::int64_t size) {
    const Tensor dy = tensor::cast(tensor::narrowed(in.dy_to, 0, begin, size), dtype);
    tensor::matmul_into(sum, tensor::transposed(dy), tensor::narrowed(in.x_ti, 0, begin, size),
                        (slot.accumulate && !wide_sum) || begin > 0);
  });
  if (wide_sum) write_slot(slot, sum);
}

Tensor cpu::product_forward(const ForwardProduct& in) { return library_products::forward(in); }

Tensor cpu::product_input_gradient(const InputGradient& in) {
  return library_products::input_gradient(in);
}

void cpu::product_weight_gradient(const WeightGradient& in) {
  library_products::weight_gradient(in);
}

tensor::Fp8Orders cpu::fp8_orders(const Tensor& x_mk, const tensor::Fp8Request& request) {
  return tensor::fp8_orders(x_mk, request);
}

}  // namespace pentatron::ops
