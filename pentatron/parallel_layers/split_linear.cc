// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/split_linear.h"

#include <utility>

#include "pentatron/comm/group.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::parallel_layers {
namespace {

// A started operation and its result.
struct Pending {
  Tensor out;
  comm::WorkPtr work = nullptr;  // null: there was nothing to wait for

  Tensor wait() {
    if (work != nullptr) work->wait();
    work = nullptr;
    return out;
  }
};

Shape with_rows(const Tensor& t, std::int64_t rows) {
  Shape shape = tensor::shape_of(t);
  shape[0] = rows;
  return shape;
}

Pending start_gather(comm::Group& group, const Tensor& x_rows) {
  Pending p{.out = tensor::empty(with_rows(x_rows, x_rows.size(0) * group.size()),
                                 x_rows.scalar_type(), x_rows.device())};
  p.work = group.all_gather(p.out, x_rows.variable_data().contiguous());
  return p;
}

// `partial`: this rank's own tensor; without row sharing the sum takes its place.
Pending start_sum(comm::Group& group, bool share_rows, Tensor partial) {
  if (!share_rows) {
    Pending p{.out = std::move(partial)};
    p.work = group.all_reduce(p.out, comm::ReduceOp::kSum);
    return p;
  }
  Pending p{.out = tensor::empty(with_rows(partial, partial.size(0) / group.size()),
                                 partial.scalar_type(), partial.device())};
  p.work = group.reduce_scatter(p.out, std::move(partial), comm::ReduceOp::kSum);
  return p;
}

class SplitOutputs final : public ops::Projection {
 public:
  SplitOutputs(const LeafContext& context, WeightRef& weight_oi, WeightRef* bias_o,
               const ops::Scope& scope)
      : Projection(weight_oi, bias_o, scope),
        group_(context.group("tp")),
        share_rows_(context.layout().sequence_parallel) {}

  Tensor forward(const Tensor& x_rows, DType out) override {
    return forward_product(share_rows_ ? start_gather(group_, x_rows).wait() : x_rows, bias(), out,
                           /*keep_input=*/!share_rows_);
  }

  Tensor backward(const Tensor& dy_to, const Saved& x, DType out, bool needs_dx) override {
    // The gather goes first, so that it travels while the input's gradient is made.
    const bool postponed = scope().queue != nullptr && scope().queue->postpone();
    Pending rows;
    if (x.defined() && share_rows_ && !postponed) rows = start_gather(group_, x.get());
    Pending dx;
    const OutputGradient dy = output_gradient(dy_to, needs_dx, x.defined());
    if (needs_dx) dx = start_sum(group_, share_rows_, input_gradient(dy, out));
    queue_weight_grads(dy, trainable_bias() != nullptr ? dy_to : Tensor(), x, rows);
    return dx.wait();
  }

 private:
  // `bias_dy_to`: undefined where no bias learns.
  void queue_weight_grads(const OutputGradient& dy, const Tensor& bias_dy_to, const Saved& x,
                          Pending& rows) {
    WeightRef* bias = trainable_bias();
    if (!x.defined() && bias == nullptr) return;
    const Tensor gathered = rows.wait();
    WeightGradQueue::Work weight_work;
    if (x.defined()) {
      weight_work = weight_grad_work(
          dy,
          [gathered, x, &group = group_, share_rows = share_rows_] {
            return gathered.defined() ? gathered
                   : share_rows       ? start_gather(group, x.get()).wait()
                                      : x.get();
          },
          /*x_is_whole=*/share_rows_);
    }
    scope().put([weight_work, bias, bias_dy_to, sums = take_bias_sums()] {
      if (weight_work) weight_work();
      if (bias != nullptr) write_bias_grad(*bias, bias_dy_to, sums);
    });
  }

  comm::Group& group_;
  bool share_rows_;
};

class SplitInputs final : public ops::Projection {
 public:
  SplitInputs(const LeafContext& context, WeightRef& weight_oi, WeightRef* bias_o,
              const ops::Scope& scope)
      : Projection(weight_oi, bias_o, scope),
        context_(context),
        group_(context.group("tp")),
        share_rows_(context.layout().sequence_parallel) {}

  Tensor forward(const Tensor& x_ti, DType out) override {
    static_cast<void>(context_.local_rows(x_ti.size(0)));  // one clear error before ranks meet
    Tensor y =
        start_sum(group_, share_rows_, forward_product(x_ti, nullptr, out, /*keep_input=*/true))
            .wait();
    if (bias() != nullptr) y.add_(bias()->forward_weight());
    return y;
  }

  Tensor backward(const Tensor& dy_rows, const Saved& x, DType out, bool needs_dx) override {
    const bool learns = x.defined();
    const Tensor dy_to =
        share_rows_ && (needs_dx || learns) ? start_gather(group_, dy_rows).wait() : dy_rows;
    const OutputGradient dy = output_gradient(dy_to, needs_dx, learns);
    Tensor dx;
    if (needs_dx) dx = input_gradient(dy, out);
    WeightRef* bias = trainable_bias();
    if (!learns && bias == nullptr) return dx;
    WeightGradQueue::Work weight_work;
    if (learns)
      weight_work = weight_grad_work(
          dy, [x] { return x.get(); }, false);
    scope().put([weight_work, bias, dy_rows = bias != nullptr ? dy_rows : Tensor(),
                 sums = take_bias_sums()] {
      if (weight_work) weight_work();
      if (bias != nullptr) write_bias_grad(*bias, dy_rows, sums);
    });
    return dx;
  }

 private:
  const LeafContext& context_;
  comm::Group& group_;
  bool share_rows_;
};

class GroupReducer final : public ops::RowReducer {
 public:
  explicit GroupReducer(comm::Group& group) : group_(group) {}
  void max(Tensor t) override { comm::all_reduce(group_, std::move(t), comm::ReduceOp::kMax); }
  void sum(Tensor t) override { comm::all_reduce(group_, std::move(t)); }

 private:
  comm::Group& group_;
};

template <typename Split>
std::unique_ptr<ops::Projection> make(const LeafContext& context, WeightRef& weight_oi,
                                      WeightRef* bias_o, const ops::Scope& scope) {
  if (context.size("tp") == 1) {
    return std::make_unique<ops::Projection>(weight_oi, bias_o, scope);
  }
  return std::make_unique<Split>(context, weight_oi, bias_o, scope);
}

}  // namespace

std::unique_ptr<ops::Projection> split_outputs(const LeafContext& context, WeightRef& weight_oi,
                                               WeightRef* bias_o, const ops::Scope& scope) {
  return make<SplitOutputs>(context, weight_oi, bias_o, scope);
}

std::unique_ptr<ops::Projection> split_inputs(const LeafContext& context, WeightRef& weight_oi,
                                              WeightRef* bias_o, const ops::Scope& scope) {
  return make<SplitInputs>(context, weight_oi, bias_o, scope);
}

std::unique_ptr<ops::RowReducer> vocabulary_reducer(const LeafContext& context) {
  if (context.size("tp") == 1) return nullptr;
  return std::make_unique<GroupReducer>(context.group("tp"));
}

}  // namespace pentatron::parallel_layers
