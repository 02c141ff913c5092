// SPDX-License-Identifier: Apache-2.0
// Shapes: t rows, o outputs, i inputs of a product.
#include "pentatron/bench/ceilings.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "pentatron/base/log.h"
#include "pentatron/bench/stopwatch.h"
#include "pentatron/ops/attention_plan.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/fp8_blockwise.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/sequence_layout.h"

namespace pentatron::bench {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMilli = 1e3;
constexpr double kStd = 0.1;  // of operands: sums of thousands of products stay finite in 16 bits

ProductTimes time_compute_products(Device device, const ProductShape& shape, DType dtype) {
  const ops::OpTable& table = ops::op_table(device);
  const Tensor x_ti = random_tensor({shape.rows, shape.inputs}, dtype, device, "x", kStd);
  const Tensor w_oi = random_tensor({shape.outputs, shape.inputs}, dtype, device, "w", kStd);
  const Tensor dy_to = random_tensor({shape.rows, shape.outputs}, dtype, device, "dy", kStd);
  const Tensor slot_oi = tensor::zeros({shape.outputs, shape.inputs}, DType::Float, device);
  ProductTimes times;
  times.forward =
      time_calls(device, [&] {
        (void)table.product_forward(
            {.x_ti = x_ti, .weight = {.data = w_oi}, .bias_o = {}, .out = dtype, .recipe = {}});
      }).seconds;
  times.input_gradient =
      time_calls(device, [&] {
        (void)table.product_input_gradient(
            {.dy_to = dy_to, .weight = {.data = w_oi}, .out = dtype, .recipe = {}});
      }).seconds;
  times.weight_gradient =
      time_calls(device, [&] {
        table.product_weight_gradient({.dy_to = dy_to, .x_ti = x_ti, .slot = {.buffer = slot_oi}});
      }).seconds;
  return times;
}

ProductTimes time_fp8_products(Device device, const ProductShape& shape, DType dtype, bool blocks) {
  const ops::OpTable& table = ops::op_table(device);
  const tensor::ScaleBlock rows_block = blocks ? tensor::kActivationBlock : tensor::ScaleBlock{};
  const tensor::ScaleBlock weights_block = blocks ? tensor::kWeightBlock : tensor::ScaleBlock{};
  const auto orders = [&](std::int64_t rows, std::int64_t columns, const char* name,
                          tensor::Fp8Format format, tensor::ScaleBlock block) {
    return table.fp8_orders(random_tensor({rows, columns}, dtype, device, name, kStd),
                            {.format = format, .block = block, .rows = true, .columns = true});
  };
  const ops::Recipe recipe{.numbers = Numbers::kFp8, .weight_gradient = true};
  const auto e4m3 = tensor::Fp8Format::kE4M3;
  const auto of_gradients = blocks ? e4m3 : tensor::Fp8Format::kE5M2;
  const tensor::Fp8Orders x = orders(shape.rows, shape.inputs, "x", e4m3, rows_block);
  const tensor::Fp8Orders w = orders(shape.outputs, shape.inputs, "w", e4m3, weights_block);
  const tensor::Fp8Orders dy = orders(shape.rows, shape.outputs, "dy", of_gradients, rows_block);
  const Tensor slot_oi = tensor::zeros({shape.outputs, shape.inputs}, DType::Float, device);
  // Of x the fp8 form alone is read.
  const Tensor x_ti = tensor::empty({shape.rows, shape.inputs}, dtype, device);
  const auto view = [](const tensor::Fp8Tensor& t) {
    return WeightView{.data = t.data, .scale = t.scale, .block = t.block};
  };
  const WeightView forward = view(w.rows_mk), backward = view(w.columns_km);
  ProductTimes times;
  times.forward = time_calls(device, [&] {
                    (void)table.product_forward({.x_ti = x_ti,
                                                 .x_fp8_ti = x.rows_mk,
                                                 .weight = forward,
                                                 .bias_o = {},
                                                 .out = dtype,
                                                 .recipe = recipe});
                  }).seconds;
  times.input_gradient = time_calls(device, [&] {
                           (void)table.product_input_gradient({.dy_to = {},
                                                               .dy_fp8_to = dy.rows_mk,
                                                               .weight = backward,
                                                               .out = dtype,
                                                               .recipe = recipe});
                         }).seconds;
  times.weight_gradient =
      time_calls(device, [&] {
        table.product_weight_gradient(
            {.dy_fp8_ot = dy.columns_km, .x_fp8_it = x.columns_km, .slot = {.buffer = slot_oi}});
      }).seconds;
  return times;
}

// One table's rows, printed as they come and kept as JSON.
class Table {
 public:
  Table(nlohmann::json& out, const PowerSampler* power) : out_(out), power_(power) {
    log::print_line(fmt::format("\n{:<34} {:>7} {:>8} {:>8} {:>8} {:>6} {:>5}", "ceilings", "dtype",
                                "forward", "input g.", "weight g.", "MHz", "W"));
  }
  void copy(std::int64_t bytes, double rate) {
    log::print_line(
        fmt::format("copy {:>5} MiB {:>31.0f} GB/s read and written", bytes >> 20, rate / kGiga));
    out_.push_back({{"what", "copy"}, {"bytes", bytes}, {"bytes_per_second", rate}});
  }
  template <typename Measure>
  void products(const ProductShape& shape, const char* dtype, const Measure& measure) {
    const double from = power_ != nullptr ? power_->now() : 0;
    const ProductTimes t = measure();
    const double flops = shape.flops();
    const std::string name =
        fmt::format("{} {} x {} x {}", shape.name, shape.rows, shape.outputs, shape.inputs);
    line(name, dtype, {flops / t.forward, flops / t.input_gradient, flops / t.weight_gradient},
         from);
    out_.push_back({{"what", "product"},
                    {"name", shape.name},
                    {"rows", shape.rows},
                    {"outputs", shape.outputs},
                    {"inputs", shape.inputs},
                    {"dtype", dtype},
                    {"forward_flops_per_second", flops / t.forward},
                    {"input_gradient_flops_per_second", flops / t.input_gradient},
                    {"weight_gradient_flops_per_second", flops / t.weight_gradient}});
  }
  void attention(Device device, const AttentionShape& shape, DType dtype) {
    const double from = power_ != nullptr ? power_->now() : 0;
    const AttentionTimes t = time_attention(device, shape, dtype);
    const double forward = shape.forward_flops() / t.forward,
                 backward = shape.backward_flops() / t.backward;
    const std::string name =
        fmt::format("attention {} {} x {}, {}/{} x {}", shape.name, shape.samples, shape.length,
                    shape.heads, shape.groups, shape.head_dim);
    line(name, std::string(tensor::dtype_name(dtype)).c_str(), {forward, backward}, from);
    out_.push_back({{"what", "attention"},
                    {"name", shape.name},
                    {"samples", shape.samples},
                    {"length", shape.length},
                    {"heads", shape.heads},
                    {"groups", shape.groups},
                    {"head_dim", shape.head_dim},
                    {"dtype", tensor::dtype_name(dtype)},
                    {"forward_flops_per_second", forward},
                    {"backward_flops_per_second", backward}});
  }

 private:
  // TFLOP/s of a GPU, GFLOP/s where that is below 1.
  void line(const std::string& name, const char* dtype, const std::vector<double>& rates,
            double from) {
    std::string text = fmt::format("{:<34} {:>7}", name, dtype);
    for (const double rate : rates) {
      text += rate >= kTera ? fmt::format(" {:>7.0f}T", rate / kTera)
                            : fmt::format(" {:>7.1f}G", rate / kGiga);
    }
    if (power_ != nullptr) {
      const PowerWindow window = power_->between(from, power_->now());
      text += fmt::format("{:>{}} {:>6.0f} {:>5.0f}", "", 9 * (3 - static_cast<int>(rates.size())),
                          window.sm_clock_mhz, window.watts);
    }
    log::print_line(text);
  }

  nlohmann::json& out_;
  const PowerSampler* power_;
};

// The linear maps of a layer of Llama 3 8B and its head, of 8,192 tokens.
std::vector<ProductShape> llama_products() {
  constexpr std::int64_t kRows = 8192, kHidden = 4096, kFeedForward = 14336;
  return {{"square", 8192, 8192, 8192},          {"qkv", kRows, 6144, kHidden},
          {"proj", kRows, kHidden, kHidden},     {"fc1", kRows, 2 * kFeedForward, kHidden},
          {"fc2", kRows, kHidden, kFeedForward}, {"head", kRows, 128256, kHidden}};
}

void measure_gpu(Device device, Table& table) {
  const std::vector<ProductShape> shapes = llama_products();
  for (const auto& [operands, name] : {std::pair{Operands::kCompute, "bf16"},
                                       {Operands::kFp8, "fp8"},
                                       {Operands::kFp8Blocks, "blocks"}}) {
    for (const ProductShape& shape : shapes) {
      table.products(shape, name, [&device, &shape, operands = operands] {
        return time_products(device, shape, DType::BFloat16, operands);
      });
    }
  }
  for (const AttentionShape& shape :
       {AttentionShape{"8B", 1, 8192, 32, 8, 128}, AttentionShape{"8B", 2, 4096, 32, 8, 128},
        AttentionShape{"124M", 16, 1024, 12, 12, 64}, AttentionShape{"32k", 1, 32768, 8, 2, 128}}) {
    table.attention(device, shape, DType::BFloat16);
  }
}

void measure_cpu(Table& table) {
  for (const ProductShape& shape :
       {ProductShape{"square", 1024, 1024, 1024}, ProductShape{"width 768", 256, 768, 768},
        ProductShape{"width 768, fc1", 256, 3072, 768}, ProductShape{"width 64", 256, 64, 64}}) {
    table.products(shape, "fp32", [&] { return time_products(kCpu, shape, DType::Float); });
  }
  table.attention(kCpu, {"124M", 1, 512, 12, 12, 64}, DType::Float);
}

}  // namespace

double copy_rate(Device device, std::int64_t bytes) {
  const Tensor from = tensor::zeros({bytes}, DType::Byte, device);
  Tensor to = tensor::empty({bytes}, DType::Byte, device);
  const Timing timing = time_calls(device, [&] { to.copy_(from); });
  return 2.0 * static_cast<double>(bytes) / timing.seconds;
}

ProductTimes time_products(Device device, const ProductShape& shape, DType dtype,
                           Operands operands) {
  return operands == Operands::kCompute
             ? time_compute_products(device, shape, dtype)
             : time_fp8_products(device, shape, dtype, operands == Operands::kFp8Blocks);
}

double AttentionShape::forward_flops() const {
  // Two products of two operations each, half of them behind the mask.
  const auto s = static_cast<double>(length);
  return 2.0 * static_cast<double>(samples) * s * s * static_cast<double>(heads * head_dim);
}

AttentionTimes time_attention(Device device, const AttentionShape& shape, DType dtype) {
  SequenceRows rows;
  for (std::int64_t sample = 0; sample <= shape.samples; ++sample) {
    rows.boundaries.push_back(sample * shape.length);
  }
  const SequenceLayout layout = SequenceLayout(std::move(rows)).to(device);
  const ops::AttentionPlan plan{
      .rows = layout.attention(),
      .options = {.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim))}};
  const std::int64_t t = shape.samples * shape.length;
  const auto made = [&](std::int64_t heads, const char* name) {
    return random_tensor({t, heads, shape.head_dim}, dtype, device, name);
  };
  const Tensor q = made(shape.heads, "q"), k = made(shape.groups, "k"), v = made(shape.groups, "v"),
               dout = made(shape.heads, "dout");
  AttentionTimes times;
  times.forward = time_calls(device, [&] { (void)ops::attention_forward(plan, q, k, v); }).seconds;
  const ops::AttentionOutput output = ops::attention_forward(plan, q, k, v);
  times.backward = time_calls(device, [&] {
                     (void)ops::attention_backward(plan, q, k, v, output, dout);
                   }).seconds;
  return times;
}

Ceilings measure_ceilings(Device device, const PowerSampler* power, nlohmann::json& out) {
  out = nlohmann::json::array();
  Ceilings ceilings;
  const std::vector<std::int64_t> copies =
      device.is_cuda() ? std::vector<std::int64_t>{64 << 20, 256 << 20, std::int64_t{1} << 30}
                       : std::vector<std::int64_t>{64 << 20};
  Table table(out, power);
  for (const std::int64_t bytes : copies) {
    ceilings.copy_bytes_per_second = copy_rate(device, bytes);
    table.copy(bytes, ceilings.copy_bytes_per_second);
  }
  if (device.is_cuda()) {
    measure_gpu(device, table);
  } else {
    measure_cpu(table);
  }
  return ceilings;
}

}  // namespace pentatron::bench
