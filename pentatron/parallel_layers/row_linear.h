// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/adapter.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

class DelayedScales;

// y = sum over ranks of x_local W_local^T, + b once, with W's input columns split over the
// tensor-parallel ranks. Input [tokens, local in]; output [local rows, out]. The bias is added
// after the reduction.
class RowLinear final : public nn::Module {
 public:
  RowLinear(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
            const AdapterForm& adapters = {});
  [[nodiscard]] Tensor forward(const Tensor& x_ti, nn::StepContext& step);

 private:
  LeafContext context_;
  nn::Parameter* weight_;
  nn::Parameter* bias_;              // null: none
  Adapter* adapter_;                 // null: none
  DelayedScales* scales_ = nullptr;  // null: none
};

}  // namespace pentatron::parallel_layers
