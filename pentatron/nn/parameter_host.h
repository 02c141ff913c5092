// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pentatron::nn {

class Parameter;

// Where a parameter's memory comes from while it is not all there: storage that is sharded or still
// being gathered, gradients that live for a micro-batch only. Asked at the time of use; may
// communicate, so all ranks of a group ask for the same parameters in the same order.
class ParameterHost {
 public:
  virtual ~ParameterHost() = default;
  // Has bound the whole storage (bind_data or data_arrived) when it returns.
  virtual void provide_data(Parameter& parameter) = 0;
  // Has bound a gradient buffer when it returns.
  virtual void provide_grad(Parameter& parameter) = 0;
};

}  // namespace pentatron::nn
