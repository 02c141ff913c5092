// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/lion.h"

#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {
namespace {

using distributed::Piece;

class Lion final : public UpdateRule {
 public:
  [[nodiscard]] std::vector<std::string_view> states() const override { return {"exp_avg"}; }

  void update(std::span<Piece* const> pieces, const ops::AdamScalars& scalars) override {
    const auto rates = ops::rates_of(scalars);
    for (Piece* piece : pieces) {
      update_piece(*piece, scalars,
                   rates[static_cast<std::size_t>(no_scaling_.rate_of(piece->part->role))]);
    }
  }

 private:
  static void update_piece(Piece& piece, const ops::AdamScalars& scalars, const Tensor& rate) {
    const DType dtype = piece.main.scalar_type();
    Tensor grad = tensor::cast(piece.update_grad, dtype);
    if (scalars.grad_scale.defined()) grad = grad.mul(scalars.grad_scale);
    const Tensor& momentum = piece.state[0];
    Tensor pull = momentum.lerp(grad, 1 - kLionBeta1).sign();
    if (nn::decays(piece.part->role) && scalars.weight_decay.defined()) {
      pull = pull.add(piece.main.mul(scalars.weight_decay));
    }
    keep(piece.main, piece.main.sub(pull.mul(rate)), scalars.skip);
    keep(momentum, momentum.lerp(grad, 1 - kLionBeta2), scalars.skip);
  }

  static void keep(const Tensor& old, const Tensor& updated, const Tensor& skip) {
    old.copy_(skip.defined() ? tensor::where(skip.ne(0), old, updated) : updated);
  }

  WidthScaling no_scaling_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_lion() { return std::make_unique<Lion>(); }

}  // namespace pentatron::optimizer
