// SPDX-License-Identifier: Apache-2.0
// Shapes: t tokens, h hidden, f feed-forward, v vocabulary, n heads, g groups, d head channels.
#include "pentatron/bench/kernels.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "pentatron/base/log.h"
#include "pentatron/bench/stopwatch.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/ops/rotary.h"
#include "pentatron/tensor/fp8_blockwise.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/sequence_layout.h"

namespace pentatron::bench {
namespace {

// Bars of the kernels, shares of the measured copy rate.
constexpr double kUsual = 0.90, kNormGradient = 0.80, kErf = 0.80, kDropout = 0.80,
                 kCrossEntropy = 0.65, kReported = 0.0;
constexpr std::int64_t kSegments = 291;  // parts of Llama 3 8B
constexpr double kEpsilon = 1e-5;

class Cases {
 public:
  Cases(Device device, const KernelShapes& shapes)
      : device_(device), s_(shapes), table_(ops::op_table(device)) {}

  std::vector<KernelCase> all() {
    for (const bool bias : {false, true}) {
      for (const bool adds : {false, true}) norms(bias, adds);
    }
    rotary();
    activations();
    dropout();
    embedding();
    cross_entropy();
    optimizer();
    sums();
    if (device_.is_cuda()) fp8();
    return std::move(cases_);
  }

 private:
  using Call = std::function<void()>;
  using Prepare = std::function<Call()>;

  void add(std::string name, double elements, double bar, Prepare prepare) {
    cases_.push_back({std::move(name), elements * item(), bar, std::move(prepare)});
  }
  void add_bytes(std::string name, double bytes, double bar, Prepare prepare) {
    cases_.push_back({std::move(name), bytes, bar, std::move(prepare)});
  }
  [[nodiscard]] double item() const { return static_cast<double>(tensor::item_bytes(s_.dtype)); }
  [[nodiscard]] static double count(std::int64_t rows, std::int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
  }
  [[nodiscard]] Tensor made(IntList shape, const char* name) const {
    return random_tensor(shape, s_.dtype, device_, name);
  }
  [[nodiscard]] ops::NormInput norm_input(bool bias, bool adds) const {
    ops::NormInput in{.x_th = made({s_.tokens, s_.hidden}, "x"),
                      .weight_h = made({s_.hidden}, "weight"),
                      .bias_h = {},
                      .eps = kEpsilon,
                      .statistics = DType::Float};
    if (bias) in.bias_h = made({s_.hidden}, "bias");
    if (adds) in.delta_th = made({s_.tokens, s_.hidden}, "delta");
    return in;
  }

  // Reads x (and what is added to it), writes y (and the sum); backward reads x and dy (and the
  // sum's gradient) and writes dx.
  void norms(bool bias, bool adds) {
    const std::string name = std::string(adds ? "add + " : "") + (bias ? "LayerNorm" : "RMSNorm");
    const double u = count(s_.tokens, s_.hidden);
    add(name, (adds ? 4 : 2) * u, kUsual, [this, bias, adds] {
      return [this, in = norm_input(bias, adds)] { (void)table_.norm_forward(in); };
    });
    add(name + " gradient", (adds ? 4 : 3) * u, kNormGradient, [this, bias, adds] {
      const ops::NormInput in = norm_input(bias, adds);
      const ops::NormOutput out = table_.norm_forward(in);
      ops::NormGradInput grad{.x_th = adds ? out.sum_th : in.x_th,
                              .dy_th = made({s_.tokens, s_.hidden}, "dy"),
                              .weight_h = in.weight_h,
                              .mean_t = out.mean_t,
                              .rstd_t = out.rstd_t};
      if (adds) grad.dsum_th = made({s_.tokens, s_.hidden}, "dsum");
      return [this, grad] { (void)table_.norm_backward(grad); };
    });
  }

  // Queries and keys out of the packed product of both with the values.
  void rotary() {
    const double channels = count(s_.tokens, (s_.heads + s_.groups) * s_.head_dim);
    add("RoPE of packed q and k", 2 * channels, kUsual, [this] {
      const Tensor qkv = made({s_.tokens, s_.heads + 2 * s_.groups, s_.head_dim}, "qkv");
      const ops::RotaryTable angles =
          ops::make_rotary_table(s_.tokens, s_.head_dim, 5e5, DType::Float, device_);
      const Tensor positions = tensor::arange(s_.tokens, DType::Long, device_);
      return [this, qkv, angles, positions] {
        for (const auto& [begin, heads] :
             {std::pair{std::int64_t{0}, s_.heads}, {s_.heads, s_.groups}}) {
          (void)table_.rotate(qkv.narrow(1, begin, heads), angles.cos, angles.sin, positions, 1.0,
                              /*interleaved=*/false);
        }
      };
    });
  }

  void activations() {
    const double f = count(s_.tokens, s_.feed_forward);
    for (const auto& [name, kind] :
         {std::pair{"SwiGLU", GateKind::kSilu}, {"quick-GEGLU", GateKind::kQuickGelu}}) {
      const Gate gate{.kind = kind};
      add(name, 3 * f, kUsual, [this, gate] {
        return [this, gate, x = made({s_.tokens, 2 * s_.feed_forward}, "x")] {
          (void)table_.gated_forward(gate, x, /*largest=*/false);
        };
      });
      add(std::string(name) + " gradient", 5 * f, kUsual, [this, gate] {
        return [this, gate, x = made({s_.tokens, 2 * s_.feed_forward}, "x"),
                dy = made({s_.tokens, s_.feed_forward}, "dy")] {
          (void)table_.gated_backward(gate, x, dy, /*largest=*/false);
        };
      });
    }
    const double plain = count(s_.tokens, 4 * s_.hidden);
    for (const auto& [name, kind, bar] : {std::tuple{"GELU (tanh)", Activation::kGeluTanh, kUsual},
                                          {"GELU (erf)", Activation::kGeluErf, kErf},
                                          {"squared ReLU", Activation::kSquaredRelu, kUsual}}) {
      add(name, 2 * plain, bar, [this, kind = kind] {
        return [this, kind, x = made({s_.tokens, 4 * s_.hidden}, "x")] {
          (void)table_.activation_forward(kind, x);
        };
      });
      add(std::string(name) + " gradient", 3 * plain, bar, [this, kind = kind] {
        return [this, kind, x = made({s_.tokens, 4 * s_.hidden}, "x"),
                dy = made({s_.tokens, 4 * s_.hidden}, "dy")] {
          (void)table_.activation_backward(kind, x, dy);
        };
      });
    }
  }

  void dropout() {
    add("keyed dropout", 2 * count(s_.tokens, s_.hidden), kDropout, [this] {
      const Tensor index = tensor::arange(s_.tokens, DType::Long, device_);
      return
          [this, x = made({s_.tokens, s_.hidden}, "x"), index, samples = index.div(1024, "floor"),
           key = ops::DropoutKey{.p = 0.1, .site = make_site(1, "bench")}] {
            (void)table_.dropout(x, key, samples, index);
          };
    });
  }

  // Ids with a distance that meets every part of the table.
  [[nodiscard]] Tensor ids() const {
    return tensor::arange(s_.tokens, DType::Long, device_).mul(7919).remainder(s_.vocabulary);
  }
  void embedding() {
    const double u = count(s_.tokens, s_.hidden);
    add("embedding", 2 * u, kUsual, [this] {
      return [this, ids = ids(), rows = made({s_.vocabulary, s_.hidden}, "table")] {
        (void)table_.embedding_forward(ids, rows, 0, s_.vocabulary);
      };
    });
    // Rows of dy into fp32 rows of the slot; sorting is extra.
    add_bytes("embedding gradient", u * (item() + 8), kReported, [this] {
      return [this, ids = ids(), dy = made({s_.tokens, s_.hidden}, "dy"),
              slot = tensor::zeros({s_.vocabulary, s_.hidden}, DType::Float, device_)] {
        table_.embedding_backward(ids, dy, 0, s_.vocabulary, {.buffer = slot, .accumulate = true});
      };
    });
  }

  // Loss and gradient in place: the least is one reading and one writing of the logits.
  void cross_entropy() {
    add("cross entropy with gradient", 2 * count(s_.tokens, s_.vocabulary), kCrossEntropy, [this] {
      return [this, logits = made({s_.tokens, s_.vocabulary}, "logits"), labels = ids(),
              coefficient = tensor::full({s_.tokens}, 1.0, DType::Float, device_)] {
        (void)table_.softmax_with_gradient_(logits, labels, coefficient, 0, s_.vocabulary,
                                            DType::Float);
      };
    });
  }

  void optimizer() {
    // As flat buffers lay segments out (distributed/flat_layout.h): at multiples of 256 bytes,
    // where that leaves anything.
    const std::int64_t unit = s_.parameters / kSegments >= 64 ? 64 : 4;
    const std::int64_t each = s_.parameters / kSegments / unit * unit;
    const auto parameters = static_cast<double>(each * kSegments);
    // Gradient read; parameter and two moments read and written: 28 bytes in fp32.
    add_bytes(fmt::format("AdamW, {} segments", kSegments), parameters * 28, kUsual, [this, each] {
      const auto scalar = [this](double value) {
        return tensor::full({}, value, kAccumulationDType, device_);
      };
      const std::int64_t all = each * kSegments;
      const Tensor param = random_tensor({all}, DType::Float, device_, "param"),
                   grad = random_tensor({all}, DType::Float, device_, "grad", 1e-3),
                   first = tensor::zeros({all}, DType::Float, device_),
                   second = tensor::zeros({all}, DType::Float, device_);
      std::vector<ops::UpdateSegment> segments;
      for (std::int64_t i = 0; i < kSegments; ++i) {
        const auto part = [&](const Tensor& t) { return t.narrow(0, i * each, each); };
        segments.push_back({.param = part(param),
                            .grad = part(grad),
                            .first = part(first),
                            .second = part(second)});
      }
      const ops::AdamScalars scalars{
          .lr = scalar(1e-6), .step = scalar(3), .grad_scale = scalar(0.5)};
      return [this, segments, scalars] {
        table_.adamw_step(segments, scalars, {.weight_decay = 0.1});
      };
    });
    add_bytes("sum of squares", static_cast<double>(s_.parameters) * 4, kUsual, [this] {
      return
          [this, flat = random_tensor({s_.parameters}, DType::Float, device_, "flat"),
           sum = tensor::zeros({}, kAccumulationDType, device_)] { table_.add_squares(flat, sum); };
    });
  }

  void sums() {
    add("bias gradient (column sums)", count(s_.tokens, s_.feed_forward), kUsual, [this] {
      return [this, dy = made({s_.tokens, s_.feed_forward}, "dy"),
              slot = tensor::zeros({s_.feed_forward}, DType::Float, device_)] {
        table_.column_sums(dy, {.buffer = slot, .accumulate = true});
      };
    });
    add("residual add alone", 3 * count(s_.tokens, s_.hidden), kReported, [this] {
      return [x = made({s_.tokens, s_.hidden}, "x"), y = made({s_.tokens, s_.hidden}, "y")] {
        (void)x.add(y);
      };
    });
  }

  // 16-bit values read, twice where their largest is not known, and fp8 written in both orders.
  void fp8() {
    for (const bool known : {false, true}) {
      const double elements = count(s_.tokens, s_.feed_forward);
      add_bytes(known ? "fp8 cast and transpose, known scale" : "fp8 largest, cast and transpose",
                elements * (known ? 4 : 6), kReported, [this, known] {
                  tensor::Fp8Request request{.rows = true, .columns = true};
                  if (known) request.known = tensor::full({}, 4.0, DType::Float, device_);
                  return [this, request, x = made({s_.tokens, s_.feed_forward}, "x")] {
                    (void)table_.fp8_orders(x, request);
                  };
                });
    }
    add_bytes("fp8 cast and transpose, scales of blocks", 4 * count(s_.tokens, s_.feed_forward),
              kReported, [this] {
                const tensor::Fp8Request request{
                    .block = tensor::kActivationBlock, .rows = true, .columns = true};
                return [this, request, x = made({s_.tokens, s_.feed_forward}, "x")] {
                  (void)table_.fp8_orders(x, request);
                };
              });
  }

  Device device_;
  KernelShapes s_;
  const ops::OpTable& table_;
  std::vector<KernelCase> cases_;
};

}  // namespace

KernelShapes kernel_shapes(Device device) {
  if (device.is_cuda()) {
    return {.tokens = 8192,
            .hidden = 4096,
            .feed_forward = 14336,
            .heads = 32,
            .groups = 8,
            .head_dim = 128,
            .vocabulary = 128256,
            .parameters = std::int64_t{1} << 29,
            .dtype = DType::BFloat16};
  }
  return {.tokens = 512,
          .hidden = 768,
          .feed_forward = 2048,
          .heads = 12,
          .groups = 12,
          .head_dim = 64,
          .vocabulary = 8192,
          .parameters = std::int64_t{1} << 22,
          .dtype = DType::Float};
}

std::vector<KernelCase> kernel_cases(Device device, const KernelShapes& shapes) {
  // The calls refer to what made them.
  const auto maker = std::make_shared<Cases>(device, shapes);
  std::vector<KernelCase> cases = maker->all();
  for (KernelCase& kernel : cases) {
    kernel.prepare = [maker, prepare = std::move(kernel.prepare)]() -> std::function<void()> {
      return [maker, call = prepare()] { call(); };
    };
  }
  return cases;
}

void measure_kernels(Device device, double copy_bytes_per_second, nlohmann::json& out) {
  out = nlohmann::json::array();
  const KernelShapes shapes = kernel_shapes(device);
  log::print_line(fmt::format("\n{:<36} {:>9} {:>9} {:>8} {:>8} {:>5}", "kernels", "MB moved", "us",
                              "GB/s", "of copy", "bar"));
  const std::vector<KernelCase> cases = kernel_cases(device, shapes);
  for (const KernelCase& kernel : cases) {
    const double seconds = time_calls(device, kernel.prepare()).seconds;
    const double rate = kernel.bytes / seconds, share = rate / copy_bytes_per_second;
    const bool judged = device.is_cuda() && kernel.bar > 0;
    log::print_line(fmt::format("{:<36} {:>9.1f} {:>9.1f} {:>8.0f} {:>7.1f}% {:>5}{}", kernel.name,
                                kernel.bytes * 1e-6, seconds * 1e6, rate * 1e-9, 100 * share,
                                judged ? fmt::format("{:.0f}%", 100 * kernel.bar) : "-",
                                judged && share < kernel.bar ? "  below" : ""));
    nlohmann::json row = {{"name", kernel.name},
                          {"bytes", kernel.bytes},
                          {"seconds", seconds},
                          {"bytes_per_second", rate},
                          {"share_of_copy", share}};
    if (judged) row["bar"] = kernel.bar;
    out.push_back(std::move(row));
  }
}

}  // namespace pentatron::bench
