// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/activation.h"
#include "pentatron/ops/embedding.h"
#include "pentatron/parallel_layers/make_parameter.h"
#include "pentatron/parallel_layers/position_embedding.h"
#include "pentatron/parallel_layers/regions.h"
#include "pentatron/parallel_layers/residual_dropout.h"
#include "pentatron/parallel_layers/vocab_embedding.h"

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

ResidualDropout::ResidualDropout(const LeafContext& context, double probability, std::string site)
    : context_(context), probability_(probability), site_(std::move(site)) {}

Tensor ResidualDropout::drop(const Tensor& x_th, nn::StepContext& step) {
  if (probability_ == 0.0 || !step.training()) return x_th;
  // Every channel of a row is here, so the first one is the global channel 0.
  const SequenceLayout& text = step.batch.text();
  const LeafContext::Rows rows = context_.local_rows(text.num_rows());
  return ops::dropout(x_th, probability_, make_site(step.seed, site_),
                      text.sample_ids().narrow(0, rows.begin, rows.size),
                      text.token_index().narrow(0, rows.begin, rows.size), 0);
}

Tensor ResidualDropout::forward(const Tensor& x_th, const Tensor& residual_th,
                                nn::StepContext& step) {
  return residual_th.add(drop(x_th, step));
}

}  // namespace pentatron::parallel_layers
