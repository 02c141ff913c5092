// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/whole_linear.h"

#include <memory>

#include "pentatron/base/error.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/projection.h"
#include "pentatron/parallel_layers/regions.h"

namespace pentatron::parallel_layers {

Tensor WholeLinear::forward(const Tensor& x_ti, nn::StepContext& step) {
  PENTATRON_CHECK(adapter() == nullptr, kInternal, "{} has an adapter, which is not built",
                  weight().local_name());
  return ops::linear(x_ti, std::make_unique<ops::Projection>(weight(), bias(), this->scope(step)));
}

Tensor WholeLinear::for_split(const Tensor& y_to) const { return enter_split(context(), y_to); }

}  // namespace pentatron::parallel_layers
