// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/attention_sink.h"

#include <memory>

#include "pentatron/ops/backward.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

class SinkLogitsBackward final : public Backward {
 public:
  explicit SinkLogitsBackward(WeightRef& weight_n) : weight_(&weight_n) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (output_grads.at(0).defined()) write_grad(*weight_, output_grads[0]);
    return {};
  }
  void release() override {}
  std::string_view name() const override { return "SinkLogits"; }

 private:
  WeightRef* weight_;
};

// Sinks [n, 1] beside log-sum-exps [n, t].
Tensor beside(const Tensor& sink_n, const Tensor& lse_nt) {
  return tensor::cast(sink_n, lse_nt.scalar_type()).unsqueeze(1);
}

}  // namespace

Tensor sink_logits(WeightRef& weight_n, DType statistics) {
  Tensor logits_n;
  {
    const tensor::NoGrad no_grad;
    const Tensor weight = weight_n.forward_weight();
    logits_n = weight.to(compute_dtype(weight.scalar_type(), statistics), /*non_blocking=*/false,
                         /*copy=*/true);
  }
  if (!weight_n.trainable()) return logits_n;
  return attach(std::move(logits_n), {}, std::make_unique<SinkLogitsBackward>(weight_n),
                /*force=*/true);
}

void add_sink(AttentionOutput& output, const Tensor& sink_n) {
  const tensor::NoGrad no_grad;
  const Tensor sink_n1 = beside(sink_n, output.lse_nt);
  const Tensor share_of_keys_nt = output.lse_nt.sub(sink_n1).sigmoid();
  output.out_tnd = output.out_tnd.mul(share_of_keys_nt.t().unsqueeze(2));
  output.lse_nt = output.lse_nt.logaddexp(sink_n1);
}

Tensor sink_gradient(const AttentionOutput& output, const Tensor& sink_n, const Tensor& dout_tnd) {
  const tensor::NoGrad no_grad;
  const DType dtype = output.lse_nt.scalar_type();
  // The derivative of a probability p_j by the sink is -p_j p_sink.
  const Tensor delta_tn =
      tensor::cast(dout_tnd, dtype).mul(tensor::cast(output.out_tnd, dtype)).sum(IntList{2});
  const Tensor p_sink_nt = beside(sink_n, output.lse_nt).sub(output.lse_nt).exp();
  return tensor::cast(p_sink_nt.mul(delta_tn.t()).sum(IntList{1}).neg(), sink_n.scalar_type());
}

}  // namespace pentatron::ops
