// SPDX-License-Identifier: Apache-2.0
// Shapes: t tokens, h hidden, v local vocabulary rows (padding included).
#include "pentatron/parallel_layers/vocab_head.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/fault.h"
#include "pentatron/comm/group.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/cross_entropy.h"
#include "pentatron/parallel_layers/make_parameter.h"
#include "pentatron/parallel_layers/regions.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"
#include "pentatron/tensor/views.h"

namespace pentatron::parallel_layers {
namespace {

// Where logits and compute dtypes differ, products go through converted blocks of rows, so that no
// second tensor of the logits' size appears.
constexpr std::int64_t kRowBlocks = 16;

template <typename Body>
void for_row_blocks(std::int64_t rows, bool in_blocks, const Body& body) {
  const std::int64_t step = in_blocks
                                ? std::max<std::int64_t>(1, (rows + kRowBlocks - 1) / kRowBlocks)
                                : std::max<std::int64_t>(1, rows);
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    body(begin, std::min(step, rows - begin));
  }
}

Tensor project(const Tensor& x_th, const Tensor& weight_vh, DType logits_dtype) {
  Tensor logits_tv = tensor::empty({x_th.size(0), weight_vh.size(0)}, logits_dtype, x_th.device());
  const Tensor weight_hv = tensor::transposed(weight_vh);
  for_row_blocks(x_th.size(0), logits_dtype != x_th.scalar_type(),
                 [&](std::int64_t begin, std::int64_t size) {
                   tensor::matmul_into(tensor::narrowed(logits_tv, 0, begin, size),
                                       tensor::narrowed(x_th, 0, begin, size), weight_hv, false);
                 });
  return logits_tv;
}

// What the loss node keeps besides the input.
struct LossState {
  Tensor labels_t;
  Tensor mask_t;  // statistics dtype
  Tensor log_sum_exp_t;
  std::int64_t column_begin = 0;
  std::int64_t valid_columns = 0;
};

void write_weight_grad(WeightRef& weight, const Tensor& d_logits_tv, const Tensor& x_th) {
  GradSlot slot = weight.grad_slot();
  if (x_th.size(0) == 0) {
    if (!slot.accumulate) slot.buffer.zero_();
    return;
  }
  for_row_blocks(
      x_th.size(0), d_logits_tv.scalar_type() != x_th.scalar_type(),
      [&](std::int64_t begin, std::int64_t size) {
        const Tensor block =
            tensor::cast(tensor::narrowed(d_logits_tv, 0, begin, size), x_th.scalar_type());
        tensor::matmul_into(slot.buffer, tensor::transposed(block),
                            tensor::narrowed(x_th, 0, begin, size), slot.accumulate || begin > 0);
      });
}

class LossBackward final : public ops::Backward {
 public:
  LossBackward(const Tensor& x_th, Tensor logits_tv, LossState state, WeightRef& weight,
               WeightGradQueue* queue, int unit)
      : x_th_(x_th),
        logits_tv_(std::move(logits_tv)),
        state_(std::move(state)),
        weight_(weight),
        queue_(queue),
        unit_(unit) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const Tensor x_th = x_th_.get();
    Tensor d_logits_tv = std::move(logits_tv_);  // overwritten in place
    const Tensor coefficient_t =
        output_grads.at(0).defined()
            ? state_.mask_t.mul(tensor::cast(output_grads[0], state_.mask_t.scalar_type()))
            : tensor::zeros({x_th.size(0)}, state_.mask_t.scalar_type(), x_th.device());
    ops::softmax_gradient_(d_logits_tv, state_.labels_t, state_.log_sum_exp_t, coefficient_t,
                           state_.column_begin, state_.valid_columns);
    const Tensor weight_vh = weight_.backward_weight();
    Tensor d_x_th = tensor::empty(x_th.sizes(), x_th.scalar_type(), x_th.device());
    for_row_blocks(x_th.size(0), d_logits_tv.scalar_type() != x_th.scalar_type(),
                   [&](std::int64_t begin, std::int64_t size) {
                     tensor::matmul_into(tensor::narrowed(d_x_th, 0, begin, size),
                                         tensor::cast(tensor::narrowed(d_logits_tv, 0, begin, size),
                                                      x_th.scalar_type()),
                                         weight_vh, false);
                   });
    if (weight_.trainable()) {
      auto work = [&weight = weight_, d_logits_tv, x_th] {
        write_weight_grad(weight, d_logits_tv, x_th);
      };
      if (queue_ != nullptr) {
        queue_->put(unit_, std::move(work));
      } else {
        work();
      }
    }
    return {d_x_th};
  }
  void release() override {
    x_th_.release();
    logits_tv_ = Tensor();
    state_ = LossState();
  }
  std::string_view name() const override { return "vocab_parallel_loss"; }

 private:
  Saved x_th_;
  Tensor logits_tv_;
  LossState state_;
  WeightRef& weight_;
  WeightGradQueue* queue_;
  int unit_;
};

// max, then sum of exponentials and target logit over all ranks. Gives lse and target logit [t].
std::pair<Tensor, Tensor> reduced_pieces(const LeafContext& context, const Tensor& logits_tv,
                                         const LossState& state, DType statistics) {
  Tensor max_t = ops::row_max(logits_tv, state.valid_columns, statistics);
  if (context.size("tp") > 1) {
    comm::all_reduce(context.group("tp"), max_t, comm::ReduceOp::kMax);
  }
  const ops::SoftmaxPieces pieces = ops::softmax_pieces(logits_tv, state.labels_t, max_t,
                                                        state.column_begin, state.valid_columns);
  if (context.size("tp") == 1) return {max_t.add(pieces.sum_exp_t.log()), pieces.target_logit_t};
  Tensor sums_2t = tensor::stack({pieces.sum_exp_t, pieces.target_logit_t}, 0);
  if (!planted_fault("loss_missing_reduce")) comm::all_reduce(context.group("tp"), sums_2t);
  return {max_t.add(sums_2t.select(0, 0).log()), sums_2t.select(0, 1)};
}

}  // namespace

VocabHead::VocabHead(const LeafContext& context, const nn::ParameterPlan& plan,
                     const std::string& name)
    : context_(context), weight_(&add_parameter(make_parameter(context, plan, name + ".weight"))) {}

VocabHead::VocabHead(const LeafContext& context, nn::Parameter& tied_weight, int owner)
    : context_(context), weight_(&tied_weight), owner_(owner) {}

Tensor VocabHead::loss(const Tensor& x_th, nn::StepContext& step) {
  const nn::ShardPart& part = weight_->spec().parts.at(0);
  const PrecisionPolicy& policy = step.policy;
  const Tensor full_x_th = enter_split(context_, x_th);
  PENTATRON_CHECK(full_x_th.size(0) == step.batch.labels.numel() &&
                      full_x_th.size(0) == step.batch.loss_mask.numel(),
                  kInternal, "the loss got {} rows, {} labels and {} mask values",
                  full_x_th.size(0), step.batch.labels.numel(), step.batch.loss_mask.numel());
  LossState state;
  state.labels_t = step.batch.labels;
  state.column_begin = part.box.offset[0];
  state.valid_columns = part.box.size[0];
  const bool keep = ops::needs_backward({full_x_th}, weight_->trainable());
  Tensor loss;
  Tensor logits_tv;
  {
    tensor::NoGrad no_grad;
    state.mask_t = tensor::cast(step.batch.loss_mask, policy.statistics);
    logits_tv = project(full_x_th.detach(), weight_->forward_weight(), policy.logits);
    Tensor target_t;
    std::tie(state.log_sum_exp_t, target_t) =
        reduced_pieces(context_, logits_tv, state, policy.statistics);
    loss = tensor::cast(state.log_sum_exp_t.sub(target_t).mul(state.mask_t), policy.loss).sum();
  }
  if (!keep) return loss;
  auto backward = std::make_unique<LossBackward>(full_x_th, std::move(logits_tv), std::move(state),
                                                 *weight_, step.weight_grads,
                                                 owner_ ? step.first_unit + *owner_ : step.unit);
  return ops::attach(std::move(loss), {full_x_th}, std::move(backward), weight_->trainable());
}

Tensor VocabHead::logits(const Tensor& x_th, nn::StepContext& step) {
  const Tensor full_x_th = enter_split(context_, x_th);
  tensor::NoGrad no_grad;
  return project(full_x_th.detach(), weight_->forward_weight(), step.policy.logits)
      .narrow(1, 0, weight_->spec().parts.at(0).box.size[0]);
}

}  // namespace pentatron::parallel_layers
