// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/relative_position.h"

#include "pentatron/ops/dispatch.h"
#include "pentatron/parallel_layers/make_parameter.h"

namespace pentatron::parallel_layers {

RelativePosition::RelativePosition(const LeafContext& context, const nn::ParameterPlan& plan,
                                   const std::string& name, const ops::RelativeForm& form)
    : statistics_(context.policy().statistics),
      table_bn_(&add_parameter(make_parameter(context, plan, name + ".weight"))),
      choice_db_(ops::relative_choice(
          form, ops::compute_dtype(context.policy().compute, statistics_), context.device())) {}

Tensor RelativePosition::biases() const {
  return ops::relative_bias(*table_bn_, choice_db_, statistics_);
}

}  // namespace pentatron::parallel_layers
