// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/ops/attention_plan.h"
#include "pentatron/ops/backward.h"
#include "pentatron/parallel_layers/context_attention.h"
#include "pentatron/parallel_layers/context_rows.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::parallel_layers {
namespace {

constexpr std::string_view kName = "GatheredAttention";

// Keys and values of the whole sequence, in its order.
Tensor gather(const GatheredRows& whole, const Tensor& kv) {
  return comm::all_gather(*whole.group, kv).index_select(0, whole.from_ranks);
}
// The way back: every rank's gradients of all rows become the sums of this rank's.
Tensor scatter(const GatheredRows& whole, const Tensor& dkv) {
  return comm::reduce_scatter(*whole.group, dkv.index_select(0, whole.to_ranks));
}

using Plans = std::array<ops::AttentionPlan, 2>;
using Outputs = std::array<ops::AttentionOutput, 2>;

class GatheredAttentionBackward final : public ops::Backward {
 public:
  GatheredAttentionBackward(SequenceCutPtr cut, Plans plans, const Tensor& q_tnd, const Tensor& kv,
                            const Tensor& out_tnd, const Outputs& outputs, const ops::Scope& scope)
      : cut_(std::move(cut)),
        plans_(std::move(plans)),
        q_(scope.save(q_tnd, kName)),
        kv_(scope.save(kv, kName)),
        out_(scope.save(out_tnd, kName)) {
    for (std::size_t half = 0; half < 2; ++half) {
      lse_[half] = Saved(outputs[half].lse_nt);
      for (const Tensor& t : outputs[half].library) library_[half].emplace_back(t);
    }
  }

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    PENTATRON_CHECK(output_grads.at(0).defined(), kInternal,
                    "{}: no gradient came, the other ranks would wait for this one", kName);
    const auto [k, v] = unpack(gather(cut_->whole, kv_.get()));
    std::vector<Tensor> dq;
    Tensor dkv, dsink, dbias;
    for (std::size_t half = 0; half < 2; ++half) {
      ops::AttentionOutput output{
          .out_tnd = half_of(out_.get(), half), .lse_nt = lse_[half].get(), .library = {}};
      for (const Saved& saved : library_[half]) output.library.push_back(saved.get());
      const ops::AttentionGradients grads = ops::attention_backward(
          plans_[half], half_of(q_.get(), half), k, v, output, half_of(output_grads[0], half));
      dq.push_back(grads.dq_tnd);
      const Tensor packed = pack(grads.dk_tgd, grads.dv_tgd);
      dkv = half == 0 ? packed : dkv.add_(packed);
      if (grads.dsink_n.defined()) dsink = half == 0 ? grads.dsink_n : dsink.add(grads.dsink_n);
      if (grads.dbias_nd.defined()) dbias = half == 0 ? grads.dbias_nd : dbias.add(grads.dbias_nd);
    }
    const auto [dk, dv] = unpack(scatter(cut_->whole, dkv));
    return {tensor::cat(dq, 0), dk, dv, dsink, dbias};
  }
  void release() override {
    for (Saved* saved : {&q_, &kv_, &out_, &lse_[0], &lse_[1]}) saved->release();
    for (std::vector<Saved>& saved : library_) saved.clear();
    plans_ = {};
    cut_.reset();
  }
  std::string_view name() const override { return kName; }

 private:
  SequenceCutPtr cut_;
  Plans plans_;
  Saved q_, kv_, out_;
  std::array<Saved, 2> lse_;
  std::array<std::vector<Saved>, 2> library_;
};

}  // namespace

Tensor gathered_attention(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                          const SequenceLayout& rows, const ops::AttentionOptions& options,
                          const ops::Scope& scope) {
  check_share(q_tnd, k_tgd, rows, options.causal);
  const SequenceCutPtr& cut = rows.cut();
  Plans plans;
  Outputs outputs;
  Tensor kv, out;
  {
    const tensor::NoGrad no_grad;
    kv = pack(k_tgd, v_tgd);
    const auto [k, v] = unpack(gather(cut->whole, kv));
    for (std::size_t half = 0; half < 2; ++half) {
      plans[half] = {.rows = cut->halves_with_whole[half], .options = without_graph(options)};
      outputs[half] = ops::attention_forward(plans[half], half_of(q_tnd, half), k, v);
    }
    out = tensor::cat({outputs[0].out_tnd, outputs[1].out_tnd}, 0);
  }
  if (!ops::needs_backward({q_tnd, k_tgd, v_tgd, options.sink_n, options.bias_nd})) return out;
  auto backward = std::make_unique<GatheredAttentionBackward>(cut, std::move(plans), q_tnd, kv, out,
                                                              outputs, scope);
  return ops::attach(std::move(out), {q_tnd, k_tgd, v_tgd, options.sink_n, options.bias_nd},
                     std::move(backward));
}

}  // namespace pentatron::parallel_layers
