// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/norm.h"

#include "pentatron/base/error.h"
#include "pentatron/ops/norm.h"
#include "pentatron/parallel_layers/make_parameter.h"
#include "pentatron/parallel_layers/split_norm.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::parallel_layers {

Norm::Norm(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
           const NormForm& form)
    : epsilon_(form.epsilon), zero_centred_(form.zero_centred) {
  if (form.kind == NormKind::kL2Norm) return;
  weight_ = &add_parameter(make_parameter(context, plan, name + ".weight"));
  const nn::ShardPart& part = weight_->spec().parts.at(0);
  if (!part.split_axes.empty() && context.size(part.split_axes[0]) > 1) {
    PENTATRON_CHECK(form.kind == NormKind::kRmsNorm, kConfig,
                    "{}: only RMSNorm goes over the channels of several ranks, not LayerNorm "
                    "(--normalization)",
                    name);
    channel_ranks_ = &context.group(part.split_axes[0]);
  }
  if (form.kind == NormKind::kLayerNorm) {
    bias_ = &add_parameter(make_parameter(context, plan, name + ".bias"));
  }
}

Tensor Norm::normalised(const Tensor& x, nn::StepContext& step) {
  const DType statistics = step.policy.statistics;
  if (weight_ == nullptr) return ops::l2_norm(x, epsilon_, statistics, step.scope);
  if (channel_ranks_ != nullptr) {
    return split_rms_norm(*channel_ranks_, x, *weight_,
                          {.channels = weight_->spec().parts.at(0).logical_shape.at(0),
                           .epsilon = epsilon_,
                           .statistics = statistics,
                           .zero_centred = zero_centred_},
                          step.scope);
  }
  if (bias_ == nullptr) {
    return ops::rms_norm(x, *weight_, epsilon_, statistics, step.scope, zero_centred_);
  }
  return ops::layer_norm(x, *weight_, *bias_, epsilon_, statistics, step.scope, zero_centred_);
}

Tensor Norm::computed(const Tensor& out, nn::StepContext& step) const {
  const DType compute = step.policy.compute;
  if (out.scalar_type() == compute) return out;
  Tensor cast = tensor::cast(out, compute);
  // Whoever makes norms again makes this again, too.
  step.scope.offer_rebuild(cast, bias_ != nullptr ? "LayerNorm" : "RmsNorm", out,
                           [compute](const Tensor& y) { return tensor::cast(y, compute); });
  return cast;
}

Tensor Norm::forward(const Tensor& x, nn::StepContext& step) {
  return computed(normalised(x, step), step);
}

Norm::Added Norm::add_and_norm(const Tensor& residual, const Tensor& delta, nn::StepContext& step) {
  const DType added_dtype = delta.defined() ? delta.scalar_type() : step.policy.compute;
  const bool one_pass =
      weight_ != nullptr && channel_ranks_ == nullptr && residual.scalar_type() == added_dtype;
  if (!one_pass) {
    const Tensor sum = delta.defined() ? residual.add(delta) : residual;
    return {sum, forward(sum, step)};
  }
  const DType statistics = step.policy.statistics;
  const ops::AddedNorm added =
      bias_ == nullptr ? ops::add_rms_norm(residual, delta, *weight_, epsilon_, statistics,
                                           step.scope, zero_centred_)
                       : ops::add_layer_norm(residual, delta, *weight_, *bias_, epsilon_,
                                             statistics, step.scope, zero_centred_);
  return {added.sum_th, computed(added.norm_th, step)};
}

}  // namespace pentatron::parallel_layers
