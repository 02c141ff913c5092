// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/adapter.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

class DelayedScales;

// What linear maps over a planned weight have, whichever way it is split: the weight, and bias,
// adapter and scales of their own where there are some.
class LinearLeaf : public nn::Module {
 public:
  // `name`: local name without ".weight". `adapters`: what planned adapters are like.
  LinearLeaf(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
             const AdapterForm& adapters = {});

 protected:
  // The step's, with the map's own scales where it has some.
  [[nodiscard]] ops::Scope scope(const nn::StepContext& step) const;
  [[nodiscard]] const LeafContext& context() const { return context_; }
  [[nodiscard]] nn::Parameter& weight() const { return *weight_; }
  [[nodiscard]] nn::Parameter* bias() const { return bias_; }  // null: none
  [[nodiscard]] Adapter* adapter() const { return adapter_; }  // null: none

 private:
  LeafContext context_;
  nn::Parameter* weight_;
  nn::Parameter* bias_ = nullptr;
  Adapter* adapter_ = nullptr;
  DelayedScales* scales_ = nullptr;  // null: none
};

}  // namespace pentatron::parallel_layers
