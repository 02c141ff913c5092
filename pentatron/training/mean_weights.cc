// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/mean_weights.h"

#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::training {

MeanWeights::MeanWeights(const std::vector<Batch>& batches, comm::Group& replicas, Device device) {
  const tensor::NoGrad no_grad;
  const Tensor totals = tensor::zeros({2}, kAccumulationDType, device);
  total_tokens_ = totals.select(0, 0);
  total_batches_ = totals.select(0, 1);
  for (const Batch& batch : batches) {
    const Tensor count = batch.loss_mask().sum(kAccumulationDType);
    total_tokens_.add_(count);
    counts_.push_back(count.clamp_min(1.0));
  }
  total_batches_.add_(static_cast<double>(batches.size()));
  comm::all_reduce(replicas, totals);
}

void MeanWeights::apply(std::vector<Batch>& batches, DType dtype) const {
  const tensor::NoGrad no_grad;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Tensor weight = total_tokens_.div(counts_[i]).div(total_batches_);
    Tensor& mask = batches[i].fields.at("loss_mask");
    mask = tensor::cast(mask, dtype).mul(weight.to(dtype));
  }
}

Tensor MeanWeights::without_weight(const Tensor& loss_sum, int micro_batch) const {
  const tensor::NoGrad no_grad;
  // Without a valid token anywhere the sum is 0, and so it stays.
  return loss_sum.detach()
      .to(kAccumulationDType)
      .mul(counts_[static_cast<std::size_t>(micro_batch)])
      .mul(total_batches_)
      .div(total_tokens_.clamp_min(1.0));
}

}  // namespace pentatron::training
