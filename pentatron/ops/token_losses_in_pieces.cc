// SPDX-License-Identifier: Apache-2.0
// Logits that never lie whole in memory: forward makes those of some rows, takes the statistics and
// drops them; backward makes them again and turns them into gradients. One more product of the
// head. Shapes: t tokens, r rows of x, n of them in a piece, h hidden, v local vocabulary rows.
#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/token_loss_parts.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

constexpr std::string_view kName = "TokenLosses";

// Where the tokens of rows of x stand: all ranks that share the rows give theirs, one rank's after
// the other's, and a projection gathers them in that order.
class Pieces {
 public:
  Pieces(std::int64_t rows, std::int64_t tokens, std::int64_t at_once)
      : rows_(rows), shares_(tokens / rows), at_once_(at_once) {
    PENTATRON_CHECK(tokens % rows == 0, kInternal, "token losses: {} labels for {} rows", tokens,
                    rows);
  }
  // body(first row, rows) of each piece.
  template <typename Body>
  void each(const Body& body) const {
    for (std::int64_t begin = 0; begin < rows_; begin += at_once_) {
      body(begin, std::min(at_once_, rows_ - begin));
    }
  }
  // Of a [t] tensor the tokens of a piece, in the order in which its logits come.
  [[nodiscard]] Tensor of(const Tensor& all_t, std::int64_t begin, std::int64_t count) const {
    return all_t.view({shares_, rows_}).narrow(1, begin, count).reshape({-1});
  }
  void put(const Tensor& all_t, std::int64_t begin, std::int64_t count, const Tensor& piece) const {
    all_t.view({shares_, rows_}).narrow(1, begin, count).copy_(piece.view({shares_, count}));
  }

 private:
  std::int64_t rows_;
  std::int64_t shares_;
  std::int64_t at_once_;
};

// The capped logits of some rows.
Tensor logits_of(Projection& projection, const Tensor& x_nh, const TokenLossOptions& options) {
  const Tensor logits = projection.forward(x_nh, options.logits);
  cap_logits_(logits, options.logit_softcap);
  return logits;
}

class PiecesBackward final : public Backward {
 public:
  // x is kept also where the weight is frozen: its logits are made again.
  PiecesBackward(const Tensor& x_rh, std::unique_ptr<Projection> projection, Tensor labels_t,
                 Tensor log_sum_exp_t, const Pieces& pieces, const TokenLossOptions& options)
      : projection_(std::move(projection)),
        weight_learns_(projection_->learns()),
        x_(weight_learns_ ? projection_->save_input(x_rh, kName) : Saved(x_rh)),
        needs_dx_(x_rh.requires_grad()),
        dtype_(x_rh.scalar_type()),
        labels_t_(std::move(labels_t)),
        log_sum_exp_t_(std::move(log_sum_exp_t)),
        pieces_(pieces),
        options_(options) {
    options_.vocabulary_ranks = nullptr;  // it lives for the forward alone
  }

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const Tensor coefficient_t =
        output_grads[0].defined()
            ? output_grads[0].contiguous()
            : tensor::zeros(log_sum_exp_t_.sizes(), log_sum_exp_t_.scalar_type(),
                            log_sum_exp_t_.device());
    const Tensor x_rh = x_.get();
    Tensor dx_rh;
    if (needs_dx_) dx_rh = tensor::empty(x_rh.sizes(), dtype_, x_rh.device());
    pieces_.each([&](std::int64_t begin, std::int64_t count) {
      const Tensor x_nh = x_rh.narrow(0, begin, count);
      const Tensor logits = logits_of(*projection_, x_nh, options_);
      token_loss_parts::logits_gradient_(logits, pieces_.of(labels_t_, begin, count),
                                         pieces_.of(log_sum_exp_t_, begin, count),
                                         pieces_.of(coefficient_t, begin, count), options_);
      const Tensor dx_nh =
          projection_->backward(logits, weight_learns_ ? Saved(x_nh) : Saved(), dtype_, needs_dx_);
      if (needs_dx_) dx_rh.narrow(0, begin, count).copy_(dx_nh);
    });
    return {dx_rh};
  }
  void release() override {
    x_.release();
    labels_t_ = log_sum_exp_t_ = Tensor();
  }
  std::string_view name() const override { return kName; }

 private:
  std::unique_ptr<Projection> projection_;
  bool weight_learns_;
  Saved x_;
  bool needs_dx_;
  DType dtype_;
  Tensor labels_t_;
  Tensor log_sum_exp_t_;
  Pieces pieces_;
  TokenLossOptions options_;
};

}  // namespace

Tensor token_loss_parts::in_pieces(const Tensor& x_th, std::unique_ptr<Projection> projection,
                                   const Tensor& labels_t, const TokenLossOptions& options) {
  const bool learns = projection->learns();
  const Pieces pieces(x_th.size(0), labels_t.numel(), options.rows_at_once);
  const Tensor labels = labels_t.contiguous();
  Tensor losses_t, log_sum_exp_t;
  {
    const tensor::NoGrad no_grad;
    pieces.each([&](std::int64_t begin, std::int64_t count) {
      const Tensor logits = logits_of(*projection, x_th.narrow(0, begin, count), options);
      const Statistics piece = statistics_of(logits, pieces.of(labels, begin, count), options);
      if (!losses_t.defined()) {
        losses_t = tensor::empty(labels.sizes(), piece.log_sum_exp_t.scalar_type(), x_th.device());
        log_sum_exp_t = tensor::empty(labels.sizes(), losses_t.scalar_type(), x_th.device());
      }
      pieces.put(losses_t, begin, count, losses_of(piece, options));
      pieces.put(log_sum_exp_t, begin, count, piece.log_sum_exp_t);
    });
  }
  if (!needs_backward({x_th}, learns)) return losses_t;
  auto backward = std::make_unique<PiecesBackward>(x_th, std::move(projection), labels,
                                                   std::move(log_sum_exp_t), pieces, options);
  return attach(std::move(losses_t), {x_th}, std::move(backward), learns);
}

}  // namespace pentatron::ops
