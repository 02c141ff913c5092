// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/position_embedding.h"

#include "pentatron/base/error.h"
#include "pentatron/ops/embedding.h"
#include "pentatron/parallel_layers/make_parameter.h"

namespace pentatron::parallel_layers {

PositionEmbedding::PositionEmbedding(const LeafContext& context, const nn::ParameterPlan& plan,
                                     const std::string& name)
    : context_(context), weight_(&add_parameter(make_parameter(context, plan, name + ".weight"))) {}

Tensor PositionEmbedding::forward(nn::StepContext& step) {
  const std::int64_t rows = weight_->spec().local_shape[0];
  const SequenceLayout& text = step.batch.text();
  PENTATRON_CHECK(text.max_position() < rows, kConfig,
                  "position {} is beyond --max-position-embeddings {}", text.max_position(), rows);
  return ops::embedding(context_.take_local_rows(text.positions()), *weight_, 0, rows);
}

}  // namespace pentatron::parallel_layers
