// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/parallel_layers/norm_form.h"

namespace pentatron::parallel_layers {

// LayerNorm, RMSNorm or L2Norm over the last dimension: of this rank's token rows, [local rows,
// hidden], or of each of its heads, [rows, local heads, d]; -> the same shape in the compute dtype.
// Weights are whole on every rank, or cut by channels: then x is [rows, local channels] and the
// RMSNorm goes over the channels of all ranks.
class Norm final : public nn::Module {
 public:
  // Weights by name + ".weight" and ".bias", as far as the kind has them. LayerNorm where the
  // weight is cut is a config error.
  Norm(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
       const NormForm& form);
  [[nodiscard]] Tensor forward(const Tensor& x, nn::StepContext& step);

  struct Added {
    Tensor sum;         // residual + delta, in the residual's dtype
    Tensor normalised;  // forward() of the sum
  };
  // In one pass over memory where residual and delta have one dtype and every channel is here. An
  // undefined delta: it is added already; gradients have the same bits.
  [[nodiscard]] Added add_and_norm(const Tensor& residual, const Tensor& delta,
                                   nn::StepContext& step);

 private:
  [[nodiscard]] Tensor normalised(const Tensor& x, nn::StepContext& step);
  [[nodiscard]] Tensor computed(const Tensor& out, nn::StepContext& step) const;

  double epsilon_;
  bool zero_centred_;
  nn::Parameter* weight_ = nullptr;       // null: L2Norm
  nn::Parameter* bias_ = nullptr;         // null: RMSNorm or L2Norm
  comm::Group* channel_ranks_ = nullptr;  // null: all channels are here
};

}  // namespace pentatron::parallel_layers
