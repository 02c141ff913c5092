// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <tuple>
#include <vector>

#include "pentatron/ops/backward.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/fp8_blockwise.h"

// One fp8 linear on either device.
namespace pentatron::ops::testing {

// A bf16 weight that hands out fp8 forms, as a cache of a step would.
class Fp8TestWeight final : public WeightRef {
 public:
  explicit Fp8TestWeight(const Tensor& value) : weight_(value, DType::Float) {}

  WeightView forward_view(WeightFormat format) override { return view(format); }
  WeightView backward_view(WeightFormat format) override { return view(format); }
  GradSlot grad_slot() override { return weight_.grad_slot(); }
  bool trainable() const override { return weight_.trainable(); }
  const Tensor& grad() const { return weight_.grad(); }
  const std::vector<WeightFormat>& asked() const { return asked_; }

 private:
  WeightView view(WeightFormat format) {
    asked_.push_back(format);
    const Tensor value = format.transposed ? weight_.value().t().contiguous() : weight_.value();
    if (format.numbers == Numbers::kCompute) return {value};
    const auto q =
        op_table(value.device()).fp8_orders(value, {.block = format.block, .rows = true}).rows_mk;
    return {.data = q.data, .scale = q.scale, .block = q.block};
  }

  TestWeight weight_;
  std::vector<WeightFormat> asked_;
};

// Relative distance in the 2-norm: fp8 errors are many and independent.
inline double distance(const Tensor& a, const Tensor& b) {
  const Tensor x = a.cpu().to(DType::Double), y = b.cpu().to(DType::Double);
  return x.sub(y).norm().item<double>() / y.norm().item<double>();
}

// e4m3 rounds to 3 bits after the leading one: errors up to 2^-4 and about 2^-5.3 in the mean
// square an operand; e5m2 has one bit less. A scale, layout or format that is wrong gives distances
// of order 1; a product that skipped fp8 gives 2^-9.
inline void expect_fp8_linear(Device device, std::int64_t rows, tensor::ScaleBlock activations = {},
                              tensor::ScaleBlock weights = {}, bool weight_gradient = false) {
  constexpr std::int64_t kIn = 96, kOut = 64;
  const Tensor x = normal({rows, kIn}, 1).to(DType::BFloat16);
  const Tensor w = normal({kOut, kIn}, 2, DType::Double, 0.1).to(DType::BFloat16);
  const Tensor g = normal({rows, kOut}, 3, DType::Double, 1e-3).to(DType::BFloat16);
  const Tensor x_ref = leaf(x.to(DType::Double)), w_ref = leaf(w.to(DType::Double));
  const Tensor expected = x_ref.matmul(w_ref.t());
  expected.backward(g.to(DType::Double));
  for (const tensor::Fp8Format gradient : {tensor::Fp8Format::kE4M3, tensor::Fp8Format::kE5M2}) {
    Fp8TestWeight weight(w.to(device));
    const Tensor input = leaf(x.to(device));
    WeightGradQueue queue;
    queue.set_postpone(true);
    const Recipe recipe{.numbers = Numbers::kFp8,
                        .gradient = gradient,
                        .activations = activations,
                        .weights = weights,
                        .weight_gradient = weight_gradient};
    const Tensor y = linear(input, weight, nullptr, {.queue = &queue, .recipe = recipe});
    EXPECT_EQ(y.scalar_type(), DType::BFloat16);
    EXPECT_EQ(y.device(), device);
    run_backward(y, g.to(device));
    EXPECT_EQ(queue.pending(), 1U);
    queue.drain();
    EXPECT_EQ(input.grad().scalar_type(), DType::BFloat16);
    EXPECT_TRUE(weight.asked() == (std::vector<WeightFormat>{
                                      {Numbers::kFp8, false, weights},
                                      {Numbers::kFp8, true, {weights.columns, weights.rows}}}));
    if (rows == 0) {
      EXPECT_EQ(weight.grad().abs().max().item<double>(), 0.0);
      continue;
    }
    const double output = distance(y.detach(), expected.detach());
    EXPECT_LT(output, 0.06);
    EXPECT_GT(output, 0.01);
    const double dx = distance(input.grad(), x_ref.grad());
    EXPECT_LT(dx, gradient == tensor::Fp8Format::kE4M3 ? 0.06 : 0.09);
    EXPECT_GT(dx, 0.01);
    const double dw = distance(weight.grad(), w_ref.grad());
    if (!weight_gradient) {
      EXPECT_LT(dw, 0.005);  // made in bf16
      continue;
    }
    EXPECT_LT(dw, gradient == tensor::Fp8Format::kE4M3 ? 0.06 : 0.09);
    EXPECT_GT(dw, 0.01);
  }
}

// Both orders of a quantised matrix, on any device, against the plain reference on the CPU: bits.
inline void expect_fp8_orders(Device device, const Tensor& x_mk, tensor::Fp8Format format) {
  const tensor::Fp8Request request{.format = format, .rows = true, .columns = true};
  const auto expected = tensor::quantize_fp8(x_mk.cpu(), format);
  const auto bytes = [](const Tensor& t) { return t.cpu().view(DType::Byte); };
  const auto got = op_table(device).fp8_orders(x_mk.to(device), request);
  EXPECT_TRUE(got.rows_mk.scale.cpu().equal(expected.scale));
  EXPECT_TRUE(got.columns_km.scale.cpu().equal(expected.scale));
  EXPECT_TRUE(bytes(got.rows_mk.data).equal(bytes(expected.data)));
  const std::int64_t rows = x_mk.size(0), padded = (rows + 15) / 16 * 16;
  const Tensor columns = bytes(got.columns_km.data);
  ASSERT_EQ(tensor::shape_of(columns), (Shape{x_mk.size(1), padded}));
  EXPECT_TRUE(columns.narrow(1, 0, rows).equal(bytes(expected.data).t()));
  EXPECT_EQ(columns.narrow(1, rows, padded - rows).to(DType::Float).abs().sum().item<float>(), 0);
}

// The same with the scales of --fp8-recipe blockwise: each order is quantised for itself, squares
// alike for both. `what` names the case.
inline void expect_fp8_block_orders(Device device, const Tensor& x_mk, tensor::Fp8Format format,
                                    tensor::ScaleBlock block, const std::string& what) {
  const auto bytes = [](const Tensor& t) { return t.cpu().contiguous().view(DType::Byte); };
  const auto expect_equal = [&](const tensor::Fp8Tensor& got, const tensor::Fp8Tensor& expected,
                                const char* order) {
    EXPECT_TRUE(got.block == block) << what << ", " << order;
    EXPECT_TRUE(got.scale.cpu().equal(expected.scale)) << what << ": scales of the " << order;
    EXPECT_TRUE(bytes(got.data).equal(bytes(expected.data))) << what << ": data of the " << order;
  };
  const auto got = op_table(device).fp8_orders(
      x_mk.to(device), {.format = format, .block = block, .rows = true, .columns = true});
  expect_equal(got.rows_mk, tensor::quantize_fp8(x_mk.cpu(), format, block), "rows");
  const std::int64_t rows = x_mk.size(0), padded = (rows + 15) / 16 * 16;
  const Tensor x_km = tensor::zeros({x_mk.size(1), padded}, x_mk.scalar_type());
  x_km.narrow(1, 0, rows).copy_(x_mk.t());
  expect_equal(got.columns_km, tensor::quantize_fp8(x_km, format, block), "columns");
  const auto one = op_table(device).fp8_orders(
      x_mk.to(device), {.format = format, .block = block, .rows = false, .columns = true});
  EXPECT_FALSE(one.rows_mk.data.defined()) << what;
  expect_equal(one.columns_km, tensor::quantize_fp8(x_km, format, block), "columns alone");
}

// Values of blocks of very unequal size, so that a scale in a wrong place shows.
inline Tensor unequal_blocks(std::int64_t rows, std::int64_t columns, double std, int seed) {
  constexpr double kStep = 64;
  const Tensor row = tensor::arange(rows, DType::Float).div(kStep).floor().unsqueeze(1);
  const Tensor column = tensor::arange(columns, DType::Float).div(kStep).floor();
  return normal({rows, columns}, seed, DType::Float, std)
      .mul(row.add(column).mul(0.5).exp2())
      .to(DType::BFloat16);
}

// a and b with the scales of --fp8-recipe blockwise, and a b^T of the values they hold.
struct BlockProductCase {
  BlockProductCase(Device place, std::int64_t m, std::int64_t n, std::int64_t k,
                   tensor::ScaleBlock block, tensor::Fp8Format format)
      : device(place),
        table(op_table(place)),
        a(table
              .fp8_orders(unequal_blocks(m, k, 1.0, 1).to(device),
                          {.format = format, .block = tensor::kActivationBlock})
              .rows_mk),
        b(table.fp8_orders(unequal_blocks(n, k, 1e-3, 2).to(device), {.block = block}).rows_mk),
        expected(tensor::dequantize_fp8(a, DType::Double)
                     .matmul(tensor::dequantize_fp8(b, DType::Double).t())),
        what(fmt::format("[{}, {}] x [{}, {}] in blocks of {}, {}", m, k, n, k, block.rows,
                         format == tensor::Fp8Format::kE4M3 ? "e4m3" : "e5m2")) {}

  // b as a weight. Tensor cores add with about 13 bits over 128 elements, then in fp32.
  void expect_forward_and_input_gradient() const {
    const std::int64_t m = a.data.size(0), n = b.data.size(0);
    const WeightView weight{.data = b.data, .scale = b.scale, .block = b.block};
    const Recipe recipe{.numbers = Numbers::kFp8};
    const Tensor bias = normal({n}, 3, DType::Float).to(DType::BFloat16).to(device);
    const Tensor y =
        table.product_forward({.x_ti = tensor::zeros({m, a.data.size(1)}, DType::BFloat16, device),
                               .x_fp8_ti = a,
                               .weight = weight,
                               .bias_o = bias,
                               .out = DType::Float,
                               .recipe = recipe});
    expect_close(y, expected.add(bias.to(DType::Double)), 2e-3, what + ", forward, bias");
    const Tensor dx = table.product_input_gradient(
        {.dy_to = {}, .dy_fp8_to = a, .weight = weight, .out = DType::BFloat16, .recipe = recipe});
    EXPECT_EQ(dx.size(0), m) << what;
    expect_close(dx, expected, 0.006, what + ", input gradient");
  }

  // b as the inputs of a weight's gradient.
  void expect_weight_gradient() const {
    for (const DType dtype : {DType::Float, DType::BFloat16}) {
      const Tensor slot =
          normal({a.data.size(0), b.data.size(0)}, 4, DType::Float, 0.1).to(dtype).to(device);
      const Tensor sum = slot.to(DType::Double).add(expected);
      table.product_weight_gradient(
          {.dy_fp8_ot = a, .x_fp8_it = b, .slot = {slot, /*accumulate=*/true}});
      expect_close(slot, sum, dtype == DType::Float ? 2e-3 : 0.006,
                   what + ", accumulated weight gradient");
    }
  }

  Device device;
  const OpTable& table;
  tensor::Fp8Tensor a, b;
  Tensor expected;
  std::string what;
};

// All pairs of blocks and formats that there are, against fp64.
inline void expect_fp8_block_products(Device device) {
  using tensor::Fp8Format;
  for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
    for (const auto& [m, n, k] : {std::tuple{16, 16, 16},
                                  {37, 80, 128},
                                  {64, 336, 144},
                                  {300, 256, 640},
                                  {1000, 144, 1040}}) {
      BlockProductCase(device, m, n, k, tensor::kWeightBlock, format)
          .expect_forward_and_input_gradient();
    }
    for (const auto& [m, n, k] :
         {std::tuple{16, 16, 16}, {80, 336, 128}, {336, 64, 304}, {512, 144, 1040}}) {
      BlockProductCase(device, m, n, k, tensor::kActivationBlock, format).expect_weight_gradient();
    }
  }
}

// Products of fp8 values are those of the values they hold.
inline void expect_fp8_products(Device device) {
  using tensor::Fp8Format;
  for (const auto& [left, right] : {std::pair{Fp8Format::kE4M3, Fp8Format::kE4M3},
                                    {Fp8Format::kE5M2, Fp8Format::kE4M3},
                                    {Fp8Format::kE4M3, Fp8Format::kE5M2}}) {
    const auto a = tensor::quantize_fp8(normal({50, 64}, 1, DType::Float, 30.0).to(device), left);
    const auto b = tensor::quantize_fp8(normal({32, 64}, 2, DType::Float, 1e-4).to(device), right);
    const Tensor expected = tensor::dequantize_fp8(a, DType::Double)
                                .matmul(tensor::dequantize_fp8(b, DType::Double).t());
    expect_close(tensor::fp8_matmul(a, b, DType::BFloat16), expected, 0.005, "fp8 product");
    const Tensor held = tensor::dequantize_fp8(a, DType::Float);
    expect_close(held.abs().max(), normal({50, 64}, 1, DType::Float, 30.0).abs().max(), 1e-6,
                 "largest value");
  }
}

}  // namespace pentatron::ops::testing
