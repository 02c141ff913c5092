// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/rotary.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

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

// How much a pair is interpolated: 0 at and before `low`, 1 at and after `high`.
class YarnRamp final {
 public:
  YarnRamp(const YarnForm& form, std::int64_t rotary_dim, double base) {
    constexpr double kTwoPi = 6.28318530717958647693;
    constexpr double kNarrowest = 0.001;  // of an empty range
    const auto dim = static_cast<double>(rotary_dim);
    const auto pair_of = [&](double turns) {
      return dim * std::log(form.original_positions / (turns * kTwoPi)) / (2.0 * std::log(base));
    };
    low_ = pair_of(form.beta_fast);
    high_ = pair_of(form.beta_slow);
    if (form.round_range) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, dim - 1.0);
    if (low_ == high_) high_ += kNarrowest;
  }
  [[nodiscard]] double at(std::int64_t pair) const {
    return std::clamp((static_cast<double>(pair) - low_) / (high_ - low_), 0.0, 1.0);
  }

 private:
  double low_, high_;
};

double yarn_magnitude(const YarnForm& form) {
  const auto m = [&](double scale) {
    return form.factor > 1.0 ? 0.1 * scale * std::log(form.factor) + 1.0 : 1.0;
  };
  return m(form.mscale) / m(form.mscale_all_dim);
}

std::vector<double> frequencies_of(std::int64_t rotary_dim, double base, const RotaryForm& form) {
  std::vector<double> frequencies(static_cast<std::size_t>(rotary_dim / 2));
  std::optional<YarnRamp> ramp;
  if (form.yarn) ramp.emplace(*form.yarn, rotary_dim, base);
  std::int64_t pair = 0;
  for (double& frequency : frequencies) {
    frequency = std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary_dim));
    if (form.llama3_factor > 0.0) frequency = llama3_frequency(frequency, form.llama3_factor);
    if (ramp) {
      const double share = ramp->at(pair);
      frequency = frequency / form.yarn->factor * share + frequency * (1.0 - share);
    }
    frequency /= form.interpolation;
    if (!form.divisors.empty()) frequency /= form.divisors[static_cast<std::size_t>(pair)];
    ++pair;
  }
  return frequencies;
}

void check_form(double base, const RotaryForm& form) {
  PENTATRON_CHECK(form.interpolation > 0.0 && form.llama3_factor >= 0.0, kConfig,
                  "rotary table: interpolation {} (--rotary-seq-len-interpolation-factor) and "
                  "scaling {} (--rope-scaling-factor) must be above 0",
                  form.interpolation, form.llama3_factor);
  if (!form.yarn) return;
  PENTATRON_CHECK(
      base > 1.0 && form.yarn->factor > 0.0 && form.yarn->original_positions > 0.0 &&
          form.yarn->beta_slow > 0.0 && form.yarn->beta_fast > form.yarn->beta_slow,
      kConfig,
      "YaRN: base {} (--rotary-base) must be above 1, factor {} "
      "(--rotary-scaling-factor) and original positions {} "
      "(--yarn-original-max-position-embeddings) above 0, and --yarn-beta-fast {} above "
      "--yarn-beta-slow {} above 0",
      base, form.yarn->factor, form.yarn->original_positions, form.yarn->beta_fast,
      form.yarn->beta_slow);
}

// `num_positions`: of each set of angles in the table.
void check_arguments(const Tensor& x_tnd, const RotaryTable& table, const SequenceLayout& layout,
                     std::int64_t num_positions) {
  PENTATRON_CHECK(x_tnd.dim() == 3 && table.cos.dim() == 2 &&
                      table.cos.sizes() == table.sin.sizes() &&
                      2 * table.cos.size(1) <= x_tnd.size(2),
                  kInternal, "rotary: {} does not fit the table {}", tensor::describe(x_tnd),
                  tensor::describe(table.cos));
  PENTATRON_CHECK(
      layout.num_rows() == x_tnd.size(0) && layout.positions().device() == x_tnd.device(),
      kInternal, "rotary: positions {} for {}", tensor::describe(layout.positions()),
      tensor::describe(x_tnd));
  PENTATRON_CHECK(layout.min_position() >= 0 && layout.max_position() < num_positions, kData,
                  "positions from {} to {} are outside the rotary table of {} "
                  "(--max-position-embeddings, --seq-length)",
                  layout.min_position(), layout.max_position(), num_positions);
}

// Row i of x by row rows_t[i] of the table.
Tensor by_rows(const Tensor& x_tnd, const RotaryTable& table, const Tensor& rows_t) {
  Tensor y_tnd = rotated(x_tnd, table.cos, table.sin, rows_t, 1.0, table.interleaved);
  if (!needs_backward({x_tnd})) return y_tnd;
  return attach(std::move(y_tnd), {x_tnd}, std::make_unique<RotaryBackward>(table, rows_t));
}

// Positions in the upper half of a table of two sets, or in the lower one.
Tensor rows_by_length(const Tensor& positions_t, const Tensor& lengths_t, std::int64_t short_length,
                      std::int64_t num_positions) {
  const tensor::NoGrad no_grad;
  return lengths_t.gt(short_length).to(DType::Long).mul(num_positions).add(positions_t);
}

}  // namespace

RotaryTable make_rotary_table(std::int64_t max_position, std::int64_t rotary_dim, double base,
                              DType dtype, Device device, const RotaryForm& form) {
  PENTATRON_CHECK(
      max_position >= 0 && rotary_dim >= 2 && rotary_dim % 2 == 0 && base > 0.0, kConfig,
      "rotary table: positions {}, dimension {} (must be even), base {} (--rotary-base, "
      "--rotary-percent)",
      max_position, rotary_dim, base);
  check_form(base, form);
  PENTATRON_CHECK(
      form.divisors.empty() || static_cast<std::int64_t>(form.divisors.size()) == rotary_dim / 2,
      kConfig,
      "rotary table: {} factors (--longrope-short-factor, --longrope-long-factor) for {} pairs",
      form.divisors.size(), rotary_dim / 2);
  const std::int64_t half = rotary_dim / 2;
  const std::vector<double> frequencies = frequencies_of(rotary_dim, base, form);
  const double magnitude = form.yarn ? yarn_magnitude(*form.yarn) : form.magnitude;
  Tensor cos = tensor::empty({max_position, half}, DType::Double);
  Tensor sin = tensor::empty({max_position, half}, DType::Double);
  auto* c = cos.data_ptr<double>();
  auto* s = sin.data_ptr<double>();
  for (std::int64_t i = 0; i < half; ++i) {
    for (std::int64_t p = 0; p < max_position; ++p) {
      const double angle = static_cast<double>(p) * frequencies[static_cast<std::size_t>(i)];
      c[p * half + i] = magnitude * std::cos(angle);
      s[p * half + i] = magnitude * std::sin(angle);
    }
  }
  return {
      .cos = cos.to(device, dtype), .sin = sin.to(device, dtype), .interleaved = form.interleaved};
}

Tensor rotary(const Tensor& x_tnd, const RotaryTable& table, const SequenceLayout& layout) {
  check_arguments(x_tnd, table, layout, table.cos.size(0));
  return by_rows(x_tnd, table, layout.positions());
}

Tensor rotary_by_length(const Tensor& x_tnd, const RotaryTable& short_and_long,
                        const Tensor& lengths_t, std::int64_t short_length,
                        const SequenceLayout& layout) {
  const std::int64_t num_positions = short_and_long.cos.size(0) / 2;
  check_arguments(x_tnd, short_and_long, layout, num_positions);
  PENTATRON_CHECK(lengths_t.sizes() == layout.positions().sizes(), kInternal,
                  "rotary: lengths {} for {}", tensor::describe(lengths_t),
                  tensor::describe(x_tnd));
  return by_rows(x_tnd, short_and_long,
                 rows_by_length(layout.positions(), lengths_t, short_length, num_positions));
}

Tensor rotary_by_axes(const Tensor& x_tnd, const RotaryTable& table, const Tensor& positions_ta,
                      const std::vector<std::int64_t>& sections) {
  PENTATRON_CHECK(
      x_tnd.dim() == 3 && positions_ta.dim() == 2 && positions_ta.size(0) == x_tnd.size(0) &&
          positions_ta.size(1) == static_cast<std::int64_t>(sections.size()) &&
          std::accumulate(sections.begin(), sections.end(), std::int64_t{0}) == table.cos.size(1),
      kInternal, "rotary: positions {} on {} axes for {} and the table {}",
      tensor::describe(positions_ta), sections.size(), tensor::describe(x_tnd),
      tensor::describe(table.cos));
  if (positions_ta.is_cpu() && positions_ta.numel() > 0) {
    const auto least = positions_ta.min().item<std::int64_t>();
    const auto most = positions_ta.max().item<std::int64_t>();
    PENTATRON_CHECK(least >= 0 && most < table.cos.size(0), kData,
                    "positions from {} to {} are outside the rotary table of {} "
                    "(--max-position-embeddings, --seq-length)",
                    least, most, table.cos.size(0));
  }
  // The angles of each row; a row's position among them is its number.
  const auto of_rows = [&](const Tensor& angles_pr) {
    std::vector<Tensor> parts;
    std::int64_t begin = 0;
    for (std::size_t axis = 0; axis < sections.size(); ++axis) {
      parts.push_back(
          angles_pr.narrow(1, begin, sections[axis])
              .index_select(0, positions_ta.select(1, static_cast<std::int64_t>(axis))));
      begin += sections[axis];
    }
    return tensor::cat(parts, 1);
  };
  const RotaryTable rows{
      .cos = of_rows(table.cos), .sin = of_rows(table.sin), .interleaved = table.interleaved};
  return by_rows(x_tnd, rows, tensor::arange(x_tnd.size(0), DType::Long, x_tnd.device()));
}

}  // namespace pentatron::ops
