// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/soap.h"

#include <cmath>
#include <deque>
#include <limits>
#include <map>

#include "pentatron/optimizer/rules/whole_matrix.h"
#include "pentatron/optimizer/state_plan.h"
#include "pentatron/tensor/linear_algebra.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {
namespace {

using distributed::Piece;

// One side of a matrix: its statistic and the basis of its eigenvectors; null without.
struct Side {
  WholeState* statistic = nullptr;
  WholeState* basis = nullptr;
};
struct MatrixState {
  WholeState* second = nullptr;  // [m, n], in the eigenbasis
  Side left, right;
};

double epsilon_of(const Tensor& x) {
  return x.element_size() == sizeof(double) ? std::numeric_limits<double>::epsilon()
                                            : std::numeric_limits<float>::epsilon();
}

// Numbers of this step, on the host.
struct StepValues {
  double step;
  Tensor lr, weight_decay, grad_scale;
};

class Soap final : public UpdateRule {
 public:
  Soap(const config::OptimizerConfig& config, comm::ParallelContext& context)
      : config_(config), context_(context) {}

  [[nodiscard]] std::vector<std::string_view> states() const override { return soap_states(); }

  [[nodiscard]] std::vector<WholeState*> whole_states() override {
    std::vector<WholeState*> all;
    for (WholeState& state : whole_) all.push_back(&state);
    return all;
  }

  void prepare(std::span<Piece* const> pieces) override {
    for (const Piece* piece : pieces) {
      check_whole(*piece, "SOAP");
      const std::int64_t m = piece->part->logical_shape[0], n = piece->part->logical_shape[1];
      matrices_[piece] = {.second = make_whole(*piece, "exp_avg_sq", m, n),
                          .left = make_side(*piece, "soap_left", m),
                          .right = make_side(*piece, "soap_right", n)};
    }
  }

  void update(std::span<Piece* const> pieces, const ops::AdamScalars& scalars) override {
    if (scalars.skip.defined() && scalars.skip.item<double>() != 0) return;
    const StepValues values{.step = scalars.step.item<double>(),
                            .lr = scalars.lr,
                            .weight_decay = scalars.weight_decay,
                            .grad_scale = scalars.grad_scale};
    for (Piece* piece : pieces) update_matrix(*piece, matrices_.at(piece), values);
  }

 private:
  // Described to checkpoints as a part of which every rank that holds some of the matrix holds all;
  // one of them counts.
  WholeState* make_whole(const Piece& piece, const std::string& kind, std::int64_t rows,
                         std::int64_t columns) {
    nn::ShardPart part = *piece.part;
    if (!is_whole(part))
      part.replica = part.replica != 0 ? part.replica : context_.group(part.split_axes).rank();
    part.logical_shape = {rows, columns};
    part.box = {{0, 0}, part.logical_shape};
    part.local_row_begin = 0;
    part.local_rows = rows;
    part.replicate_axes.insert(part.replicate_axes.end(), part.split_axes.begin(),
                               part.split_axes.end());
    part.split_axes.clear();
    const Tensor& like = piece.state[0];
    whole_.push_back({.part = std::move(part),
                      .kind = kind,
                      .values = tensor::zeros({rows, columns}, like.scalar_type(), like.device())});
    return &whole_.back();
  }
  Side make_side(const Piece& piece, const std::string& kind, std::int64_t size) {
    if (size > kMaxPreconditionedSide) return {};
    return {.statistic = make_whole(piece, kind, size, size),
            .basis = make_whole(piece, kind + "_basis", size, size)};
  }

  // x turned into the eigenbasis (QL' x QR), or back (QL x QR').
  static Tensor turned(const Tensor& x, const MatrixState& state, bool back) {
    Tensor y = x;
    if (state.left.basis != nullptr) {
      const Tensor& basis = state.left.basis->values;
      y = tensor::matmul(back ? basis : basis.t(), y);
    }
    if (state.right.basis != nullptr) {
      const Tensor& basis = state.right.basis->values;
      y = tensor::matmul(y, back ? basis.t() : basis);
    }
    return y;
  }

  void add_statistic(const Side& side, const Tensor& square) const {
    if (side.statistic != nullptr)
      side.statistic->values.lerp_(square, 1 - config_.soap_shampoo_beta);
  }
  static void start_basis(const Side& side) {
    if (side.basis != nullptr) side.basis->values.copy_(soap_first_basis(side.statistic->values));
  }
  static void refresh_basis(const Side& side) {
    if (side.basis == nullptr) return;
    side.basis->values.copy_(soap_next_basis(side.statistic->values, side.basis->values));
  }

  void update_matrix(Piece& piece, const MatrixState& state, const StepValues& now) const {
    const nn::ShardPart& part = *piece.part;
    Tensor grad = tensor::cast(piece.update_grad, piece.main.scalar_type());
    if (now.grad_scale.defined()) grad = grad.mul(now.grad_scale);
    const Tensor whole_grad = gather_part(context_, part, grad.view(part.box.size));
    piece.state[0].lerp_(grad, 1 - config_.adam_beta1);
    const Tensor whole_first = gather_part(context_, part, piece.state[0].view(part.box.size));
    const auto add_statistics = [&] {
      add_statistic(state.left, tensor::matmul(whole_grad, whole_grad.t()));
      add_statistic(state.right, tensor::matmul(whole_grad.t(), whole_grad));
    };
    if (now.step == 1) {
      add_statistics();
      start_basis(state.left);
      start_basis(state.right);
    }
    Tensor& second = state.second->values;
    second.lerp_(turned(whole_grad, state, /*back=*/false).square(), 1 - config_.adam_beta2);
    const Tensor first =
        turned(whole_first, state, /*back=*/false).div(1 - std::pow(config_.adam_beta1, now.step));
    const Tensor root =
        second.div(1 - std::pow(config_.adam_beta2, now.step)).sqrt().add(config_.adam_eps);
    apply(piece, in_box(turned(first.div(root), state, /*back=*/true), part.box).reshape({-1}),
          now);
    if (now.step == 1) return;
    add_statistics();
    if (std::fmod(now.step, static_cast<double>(config_.soap_precondition_frequency)) != 0) return;
    refresh_basis(state.left);
    refresh_basis(state.right);
  }

  static void apply(const Piece& piece, Tensor pull, const StepValues& now) {
    if (nn::decays(piece.part->role) && now.weight_decay.defined()) {
      pull = pull.add(piece.main.mul(now.weight_decay));
    }
    piece.main.sub_(pull.mul(now.lr));
  }

  config::OptimizerConfig config_;
  comm::ParallelContext& context_;
  std::deque<WholeState> whole_;  // in the order of the pieces; addresses stay
  std::map<const Piece*, MatrixState> matrices_;
};

}  // namespace

// A gradient of few columns leaves a null space, and near it eigenvectors are what rounding makes
// of them: another layout would take other ones, and Adam another step. The ramp tells them apart.
Tensor soap_first_basis(const Tensor& statistic_nn) {
  const std::int64_t n = statistic_nn.size(0);
  const Tensor mean = statistic_nn.diagonal().mean();
  const Tensor ramp =
      tensor::arange(n, statistic_nn.scalar_type(), statistic_nn.device()).sub(n).div(-n);
  const Tensor shift = ramp.mul(mean).mul(std::sqrt(std::sqrt(epsilon_of(statistic_nn))));
  return tensor::eigenvectors(statistic_nn.add(shift.diag()));
}

Tensor soap_next_basis(const Tensor& statistic_nn, const Tensor& basis_nn) {
  const Tensor mean = statistic_nn.diagonal().mean();
  const Tensor kept = basis_nn.mul(mean).mul(std::sqrt(epsilon_of(statistic_nn)));
  return tensor::orthogonal_factor(tensor::matmul(statistic_nn, basis_nn).add(kept));
}

std::unique_ptr<UpdateRule> make_soap(const config::OptimizerConfig& config,
                                      comm::ParallelContext& context) {
  return std::make_unique<Soap>(config, context);
}

}  // namespace pentatron::optimizer
