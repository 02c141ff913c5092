// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/ops/attention_plan.h"
#include "pentatron/ops/attention_sink.h"
#include "pentatron/ops/attention_window.h"
#include "pentatron/ops/backward.h"
#include "pentatron/parallel_layers/context_attention.h"
#include "pentatron/parallel_layers/context_rows.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::parallel_layers {
namespace {

constexpr std::string_view kName = "RingAttention";

// A tensor of each rank that goes round: to the next rank, while that of the one before comes. A
// rank alone keeps it.
class Travelling final {
 public:
  explicit Travelling(comm::Group& group) : group_(group) {}

  // Starts to hand on `here`, whose memory stays untouched until arrive().
  void depart(Tensor here) {
    here_ = std::move(here);
    if (group_.size() == 1) return;
    coming_ = tensor::empty(here_.sizes(), here_.scalar_type(), here_.device());
    const int size = group_.size(), rank = group_.rank();
    receive_ = group_.recv(coming_, (rank + size - 1) % size);
    send_ = group_.send(here_, (rank + 1) % size);
  }
  // What came is here, what was here is gone.
  const Tensor& arrive() {
    if (group_.size() == 1) return here_;
    receive_->wait();
    send_->wait();
    here_ = std::exchange(coming_, Tensor());
    return here_;
  }

 private:
  comm::Group& group_;
  Tensor here_;
  Tensor coming_;
  comm::WorkPtr receive_;
  comm::WorkPtr send_;
};

// Calls body(step, kv) with the keys and values of this rank, then of the one before, ...: the next
// ones travel meanwhile.
template <typename Body>
void around(comm::Group& group, const Tensor& own_kv, Body body) {
  Travelling keys(group);
  Tensor kv = own_kv;
  for (int step = 0; step < group.size(); ++step) {
    const bool more = step + 1 < group.size();
    if (more) keys.depart(kv);
    body(static_cast<std::size_t>(step), kv);
    if (more) kv = keys.arrive();
  }
}

ops::AttentionPlan plan_of(const RingBlock& block, ops::AttentionOptions options) {
  options.causal = block.causal;
  options.partial = true;
  return {.rows = block.rows, .options = std::move(options)};
}

struct RingResult {
  std::array<ops::AttentionOutput, 2> halves;
  // Of each block, in the order of the ring; blocks that a window hides keep their place.
  std::vector<std::vector<Tensor>> library;
};

RingResult ring_forward(const SequenceCut& cut, const ops::AttentionOptions& options,
                        const Tensor& q_tnd, const Tensor& own_kv) {
  RingResult result;
  around(*cut.whole.group, own_kv, [&](std::size_t step, const Tensor& kv) {
    const auto [k, v] = unpack(kv);
    for (const RingBlock& block : cut.ring.at(step)) {
      std::vector<Tensor>& library = result.library.emplace_back();
      const ops::AttentionPlan plan = plan_of(block, options);
      if (ops::sees_nothing(plan)) continue;
      ops::AttentionOutput part = ops::attention_forward(
          plan, half_of(q_tnd, block.q_half), half_of(k, block.k_half), half_of(v, block.k_half));
      ops::merge_attention(result.halves[block.q_half], part);
      library = std::move(part.library);
    }
  });
  if (options.sink_n.defined()) {
    for (ops::AttentionOutput& half : result.halves) ops::add_sink(half, options.sink_n);
  }
  return result;
}

class RingAttentionBackward final : public ops::Backward {
 public:
  RingAttentionBackward(SequenceCutPtr cut, ops::AttentionOptions options, const Tensor& q_tnd,
                        const Tensor& kv, const Tensor& out_tnd, const RingResult& result,
                        const ops::Scope& scope)
      : cut_(std::move(cut)),
        options_(std::move(options)),
        q_(scope.save(q_tnd, kName)),
        kv_(scope.save(kv, kName)),
        out_(scope.save(out_tnd, kName)) {
    for (std::size_t half = 0; half < 2; ++half) lse_[half] = Saved(result.halves[half].lse_nt);
    for (const std::vector<Tensor>& of_block : result.library) {
      std::vector<Saved>& saved = library_.emplace_back();
      for (const Tensor& t : of_block) saved.emplace_back(t);
    }
  }

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    PENTATRON_CHECK(output_grads.at(0).defined(), kInternal,
                    "{}: no gradient came, the other ranks would wait for this one", kName);
    comm::Group& group = *cut_->whole.group;
    const Tensor own_kv = kv_.get(), q = q_.get();
    const DType sums = lse_[0].get().scalar_type();
    const Tensor dq = tensor::zeros(q.sizes(), sums, q.device());
    dbias_ = options_.bias_nd.defined() ? tensor::zeros(options_.bias_nd.sizes(), sums, q.device())
                                        : Tensor();
    // What the ranks before found for the keys that are here, and then on with them: after the last
    // step everybody's come home.
    Travelling gradients(group);
    std::size_t number = 0;
    around(group, own_kv, [&](std::size_t step, const Tensor& kv) {
      Tensor dkv = tensor::zeros(kv.sizes(), sums, kv.device());
      for (const RingBlock& block : cut_->ring.at(step)) {
        add_block(block, library_.at(number++), q, kv, output_grads[0], dq, dkv);
      }
      if (step > 0) dkv.add_(gradients.arrive());
      gradients.depart(std::move(dkv));
    });
    const auto [dk, dv] = unpack(gradients.arrive());
    const DType dtype = q.scalar_type();
    return {tensor::cast(dq, dtype), tensor::cast(dk, dtype), tensor::cast(dv, dtype),
            sink_gradient(output_grads[0]), std::exchange(dbias_, Tensor())};
  }
  void release() override {
    for (Saved* saved : {&q_, &kv_, &out_, &lse_[0], &lse_[1]}) saved->release();
    library_.clear();
    cut_.reset();
    options_ = {};
  }
  std::string_view name() const override { return kName; }

 private:
  [[nodiscard]] ops::AttentionOutput output_of(std::size_t half) const {
    return {.out_tnd = half_of(out_.get(), half), .lse_nt = lse_[half].get(), .library = {}};
  }

  [[nodiscard]] Tensor sink_gradient(const Tensor& dout_tnd) const {
    if (!options_.sink_n.defined()) return {};
    const auto of_half = [&](std::size_t half) {
      return ops::sink_gradient(output_of(half), options_.sink_n, half_of(dout_tnd, half));
    };
    return of_half(0).add(of_half(1));
  }

  // Adds the gradients of a block to those of its queries in `dq` and of its keys in `dkv`.
  void add_block(const RingBlock& block, const std::vector<Saved>& library, const Tensor& q_tnd,
                 const Tensor& kv, const Tensor& dout_tnd, const Tensor& dq, const Tensor& dkv) {
    const ops::AttentionPlan plan = plan_of(block, options_);
    if (ops::sees_nothing(plan)) return;
    ops::AttentionOutput output = output_of(block.q_half);
    for (const Saved& saved : library) output.library.push_back(saved.get());
    const auto [k, v] = unpack(kv);
    const ops::AttentionGradients grads =
        ops::attention_backward(plan, half_of(q_tnd, block.q_half), half_of(k, block.k_half),
                                half_of(v, block.k_half), output, half_of(dout_tnd, block.q_half));
    half_of(dq, block.q_half).add_(grads.dq_tnd);
    if (dbias_.defined()) dbias_.add_(grads.dbias_nd);
    const auto [dk, dv] = unpack(dkv);
    half_of(dk, block.k_half).add_(grads.dk_tgd);
    half_of(dv, block.k_half).add_(grads.dv_tgd);
  }

  SequenceCutPtr cut_;
  ops::AttentionOptions options_;
  Saved q_, kv_, out_;
  std::array<Saved, 2> lse_;
  std::vector<std::vector<Saved>> library_;
  Tensor dbias_;  // while apply() runs
};

}  // namespace

Tensor ring_attention(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                      const SequenceLayout& rows, const ops::AttentionOptions& options,
                      const ops::Scope& scope) {
  check_share(q_tnd, k_tgd, rows, options.causal);
  const SequenceCutPtr& cut = rows.cut();
  Tensor kv, out;
  RingResult result;
  {
    const tensor::NoGrad no_grad;
    kv = pack(k_tgd, v_tgd);
    result = ring_forward(*cut, without_graph(options), q_tnd, kv);
    out = tensor::cast(tensor::cat({result.halves[0].out_tnd, result.halves[1].out_tnd}, 0),
                       q_tnd.scalar_type());
  }
  if (!ops::needs_backward({q_tnd, k_tgd, v_tgd, options.sink_n, options.bias_nd})) return out;
  auto backward = std::make_unique<RingAttentionBackward>(cut, without_graph(options), q_tnd, kv,
                                                          out, result, scope);
  return ops::attach(std::move(out), {q_tnd, k_tgd, v_tgd, options.sink_n, options.bias_nd},
                     std::move(backward));
}

}  // namespace pentatron::parallel_layers
