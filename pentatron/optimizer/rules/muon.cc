// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/muon.h"

#include <algorithm>
#include <cmath>

#include "pentatron/base/error.h"
#include "pentatron/optimizer/rules/whole_matrix.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {
namespace {

using distributed::Piece;

constexpr double kNormFloor = 1e-7;

// Of Keller Jordan's note, and of its successor with a polynomial for each of five iterations.
const std::vector<NewtonSchulzStep>& coefficients(const std::string& type) {
  static const std::vector<NewtonSchulzStep> kSimple = {{3.4445, -4.7750, 2.0315}};
  static const std::vector<NewtonSchulzStep> kQuintic = {{4.0848, -6.8946, 2.9270},
                                                         {3.9505, -6.3029, 2.6377},
                                                         {3.7418, -5.5913, 2.3037},
                                                         {2.8769, -3.1427, 1.2046},
                                                         {2.8366, -3.0525, 1.2012}};
  PENTATRON_CHECK(type == "simple" || type == "quintic", kConfig,
                  "--muon-coefficient-type is '{}', expected simple or quintic", type);
  return type == "simple" ? kSimple : kQuintic;
}

double scale_factor(const std::string& mode, std::int64_t num_rows, std::int64_t num_columns) {
  const auto rows = static_cast<double>(num_rows);
  const auto columns = static_cast<double>(num_columns);
  if (mode == "spectral") return std::sqrt(std::max(rows, columns));
  if (mode == "unit_rms_norm") return std::sqrt(rows / columns);
  PENTATRON_CHECK(mode == "shape_scaling", kConfig,
                  "--muon-scale-mode is '{}', expected spectral, unit_rms_norm or shape_scaling",
                  mode);
  return std::sqrt(std::max(1.0, rows / columns));
}

class Muon final : public UpdateRule {
 public:
  Muon(const config::OptimizerConfig& config, comm::ParallelContext& context)
      : config_(config),
        context_(context),
        steps_(newton_schulz_steps(config.muon_coefficient_type, config.muon_num_ns_steps)) {}

  [[nodiscard]] std::vector<std::string_view> states() const override { return muon_states(); }

  void prepare(std::span<Piece* const> pieces) override {
    for (const Piece* piece : pieces) {
      if (!is_whole(*piece->part)) static_cast<void>(context_.group(piece->part->split_axes));
    }
  }

  void update(std::span<Piece* const> pieces, const ops::AdamScalars& scalars) override {
    for (std::size_t begin = 0; begin < pieces.size();) {
      std::size_t end = begin + 1;
      while (end < pieces.size() && together(*pieces[begin], *pieces[end])) ++end;
      update_matrix(pieces.subspan(begin, end - begin), scalars);
      begin = end;
    }
  }

 private:
  [[nodiscard]] bool together(const Piece& a, const Piece& b) const {
    if (a.weight != b.weight) return false;
    return !(config_.muon_split_qkv && a.part->role == nn::ShardRole::kQkv);
  }

  void update_matrix(std::span<Piece* const> parts, const ops::AdamScalars& scalars) const {
    std::vector<Tensor> momenta;
    std::vector<Tensor> directions;
    std::int64_t rows = 0;
    for (const Piece* piece : parts) {
      const nn::ShardPart& part = *piece->part;
      check_whole(*piece, "Muon");
      Tensor grad = piece->update_grad.to(piece->main.scalar_type());
      if (scalars.grad_scale.defined()) grad = grad.mul(scalars.grad_scale);
      Tensor momentum = piece->state[0].lerp(grad, 1 - config_.muon_momentum);
      const Tensor direction =
          config_.muon_nesterov ? grad.lerp(momentum, config_.muon_momentum) : momentum;
      momenta.push_back(std::move(momentum));
      directions.push_back(gather_part(context_, part, direction.view(part.box.size)));
      rows += part.logical_shape[0];
    }
    const double scale = scale_factor(config_.muon_scale_mode, rows, directions[0].size(1)) *
                         config_.muon_extra_scale_factor;
    const Tensor joined = directions.size() == 1 ? directions[0] : tensor::cat(directions, 0);
    const Tensor update = orthogonalise(joined, steps_).mul(scale);
    std::int64_t row = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const nn::ShardPart& part = *parts[i]->part;
      const Tensor own =
          in_box(update.narrow(0, row, part.logical_shape[0]), part.box).reshape({-1});
      row += part.logical_shape[0];
      apply(*parts[i], momenta[i], own, scalars);
    }
  }

  static void apply(Piece& piece, const Tensor& momentum, const Tensor& update,
                    const ops::AdamScalars& scalars) {
    Tensor value = piece.main;
    if (nn::decays(piece.part->role) && scalars.weight_decay.defined()) {
      value = value.sub(value.mul(scalars.lr.mul(scalars.weight_decay)));
    }
    value = value.sub(update.mul(scalars.lr));
    if (!scalars.skip.defined()) {
      piece.main.copy_(value);
      piece.state[0].copy_(momentum);
      return;
    }
    const Tensor skipped = scalars.skip.ne(0);
    piece.main.copy_(tensor::where(skipped, piece.main, value));
    piece.state[0].copy_(tensor::where(skipped, piece.state[0], momentum));
  }

  config::OptimizerConfig config_;
  comm::ParallelContext& context_;
  std::vector<NewtonSchulzStep> steps_;
};

}  // namespace

std::vector<NewtonSchulzStep> newton_schulz_steps(const std::string& type, std::int64_t steps) {
  const std::vector<NewtonSchulzStep>& cycle = coefficients(type);
  std::vector<NewtonSchulzStep> all;
  for (std::int64_t i = 0; i < steps; ++i) {
    all.push_back(cycle[static_cast<std::size_t>(i) % cycle.size()]);
  }
  return all;
}

Tensor orthogonalise(const Tensor& x, const std::vector<NewtonSchulzStep>& steps) {
  const bool tall = x.size(0) > x.size(1);  // the products are of the shorter side
  Tensor y = tall ? x.t().contiguous() : x;
  const Tensor norm = y.square().sum(kAccumulationDType).sqrt().clamp_min(kNormFloor);
  y = y.div(norm);
  for (const NewtonSchulzStep& step : steps) {
    const Tensor gram = tensor::matmul(y, y.t());
    const Tensor mixed = gram.mul(step.b).add(tensor::matmul(gram, gram), step.c);
    y = y.mul(step.a).add(tensor::matmul(mixed, y));
  }
  return tall ? y.t().contiguous() : y;
}

std::unique_ptr<UpdateRule> make_muon(const config::OptimizerConfig& config,
                                      comm::ParallelContext& context) {
  return std::make_unique<Muon>(config, context);
}

}  // namespace pentatron::optimizer
