// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/rotary.h"

#include <cmath>
#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::ops {
namespace {

Tensor rotated(const Tensor& x_tnd, const Tensor& cos_pr, const Tensor& sin_pr,
               const Tensor& positions_t, double direction, bool interleaved) {
  const tensor::NoGrad no_grad;
  const Tensor x = x_tnd.stride(-1) == 1 ? x_tnd : x_tnd.contiguous();
  return op_table(x.device())
      .rotate(x, cos_pr.contiguous(), sin_pr.contiguous(), positions_t, direction, interleaved);
}

// A rotation's gradient is the rotation back.
class RotaryBackward final : public Backward {
 public:
  RotaryBackward(const RotaryTable& table, const Tensor& positions_t)
      : cos_(table.cos),
        sin_(table.sin),
        positions_(positions_t),
        interleaved_(table.interleaved) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    return {rotated(output_grads[0], cos_.get(), sin_.get(), positions_.get(), -1.0, interleaved_)};
  }
  void release() override {
    cos_.release();
    sin_.release();
    positions_.release();
  }
  std::string_view name() const override { return "Rotary"; }

 private:
  Saved cos_;
  Saved sin_;
  Saved positions_;
  bool interleaved_;
};

double llama3_frequency(double frequency, double factor) {
  constexpr double kTwoPi = 6.28318530717958647693;
  constexpr double kTrained = 8192.0, kShortest = 4.0;  // tokens; wavelengths in them
  const double waves = kTrained * frequency / kTwoPi;
  if (waves < 1.0) return frequency / factor;
  if (waves > kShortest) return frequency;
  const double share = (waves - 1.0) / (kShortest - 1.0);
  return (1.0 - share) * frequency / factor + share * frequency;
}

void check_arguments(const Tensor& x_tnd, const RotaryTable& table, const SequenceLayout& layout) {
  PENTATRON_CHECK(x_tnd.dim() == 3 && table.cos.dim() == 2 &&
                      table.cos.sizes() == table.sin.sizes() &&
                      2 * table.cos.size(1) <= x_tnd.size(2),
                  kInternal, "rotary: {} does not fit the table {}", tensor::describe(x_tnd),
                  tensor::describe(table.cos));
  PENTATRON_CHECK(
      layout.num_rows() == x_tnd.size(0) && layout.positions().device() == x_tnd.device(),
      kInternal, "rotary: positions {} for {}", tensor::describe(layout.positions()),
      tensor::describe(x_tnd));
  PENTATRON_CHECK(layout.min_position() >= 0 && layout.max_position() < table.cos.size(0), kData,
                  "positions from {} to {} are outside the rotary table of {} "
                  "(--max-position-embeddings, --seq-length)",
                  layout.min_position(), layout.max_position(), table.cos.size(0));
}

}  // namespace

RotaryTable make_rotary_table(std::int64_t max_position, std::int64_t rotary_dim, double base,
                              DType dtype, Device device, const RotaryForm& form) {
  PENTATRON_CHECK(
      max_position >= 0 && rotary_dim >= 2 && rotary_dim % 2 == 0 && base > 0.0, kConfig,
      "rotary table: positions {}, dimension {} (must be even), base {} (--rotary-base, "
      "--rotary-percent)",
      max_position, rotary_dim, base);
  PENTATRON_CHECK(form.interpolation > 0.0 && form.llama3_factor >= 0.0, kConfig,
                  "rotary table: interpolation {} (--rotary-seq-len-interpolation-factor) and "
                  "scaling {} (--rope-scaling-factor) must be above 0",
                  form.interpolation, form.llama3_factor);
  const std::int64_t half = rotary_dim / 2;
  Tensor cos = tensor::empty({max_position, half}, DType::Double);
  Tensor sin = tensor::empty({max_position, half}, DType::Double);
  auto* c = cos.data_ptr<double>();
  auto* s = sin.data_ptr<double>();
  for (std::int64_t i = 0; i < half; ++i) {
    double frequency =
        std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    if (form.llama3_factor > 0.0) frequency = llama3_frequency(frequency, form.llama3_factor);
    for (std::int64_t p = 0; p < max_position; ++p) {
      const double angle = static_cast<double>(p) / form.interpolation * frequency;
      c[p * half + i] = std::cos(angle);
      s[p * half + i] = std::sin(angle);
    }
  }
  return {
      .cos = cos.to(device, dtype), .sin = sin.to(device, dtype), .interleaved = form.interleaved};
}

Tensor rotary(const Tensor& x_tnd, const RotaryTable& table, const SequenceLayout& layout) {
  check_arguments(x_tnd, table, layout);
  const Tensor& positions_t = layout.positions();
  Tensor y_tnd = rotated(x_tnd, table.cos, table.sin, positions_t, 1.0, table.interleaved);
  if (!needs_backward({x_tnd})) return y_tnd;
  return attach(std::move(y_tnd), {x_tnd}, std::make_unique<RotaryBackward>(table, positions_t));
}

}  // namespace pentatron::ops
