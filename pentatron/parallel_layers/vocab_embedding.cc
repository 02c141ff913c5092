// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/vocab_embedding.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/embedding.h"
#include "pentatron/parallel_layers/make_parameter.h"
#include "pentatron/parallel_layers/regions.h"

namespace pentatron::parallel_layers {
namespace {

// The smallest and the largest of at least one id on the host.
std::pair<std::int64_t, std::int64_t> range_of(const Tensor& ids_t) {
  const Tensor ids = ids_t.contiguous();
  const auto* id = ids.const_data_ptr<std::int64_t>();
  const auto [lowest, highest] = std::minmax_element(id, id + ids.numel());
  return {*lowest, *highest};
}

}  // namespace

VocabEmbedding::VocabEmbedding(const LeafContext& context, const nn::ParameterPlan& plan,
                               const std::string& name)
    : context_(context), weight_(&add_parameter(make_parameter(context, plan, name + ".weight"))) {}

Tensor VocabEmbedding::forward(nn::StepContext& step) {
  const nn::ShardPart& part = weight_->spec().parts.at(0);
  const Tensor& ids_t = step.batch.tokens();
  if (ids_t.device().is_cpu() && ids_t.numel() > 0) {
    const auto [lowest, highest] = range_of(ids_t);
    PENTATRON_CHECK(lowest >= 0 && highest < part.logical_shape[0], kData,
                    "token ids from {} to {} do not fit the vocabulary of {}: the corpus was made "
                    "with another tokenizer (--vocab-size, --tokenizer-type)",
                    lowest, highest, part.logical_shape[0]);
  }
  return leave_split(context_,
                     ops::embedding(ids_t, *weight_, part.box.offset[0], part.box.size[0]));
}

}  // namespace pentatron::parallel_layers
