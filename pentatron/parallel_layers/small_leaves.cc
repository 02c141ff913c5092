// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/nn/kv_cache.h"
#include "pentatron/ops/activation.h"
#include "pentatron/ops/attention.h"
#include "pentatron/ops/embedding.h"
#include "pentatron/ops/norm.h"
#include "pentatron/parallel_layers/core_attention.h"
#include "pentatron/parallel_layers/make_parameter.h"
#include "pentatron/parallel_layers/norm.h"
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
  const Tensor& ids_t = step.batch.tokens;
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
  const auto& positions = step.batch.host_positions;
  const auto highest = std::max_element(positions.begin(), positions.end());
  PENTATRON_CHECK(highest == positions.end() || *highest < rows, kConfig,
                  "position {} is beyond --max-position-embeddings {}", *highest, rows);
  return ops::embedding(context_.take_local_rows(step.batch.positions), *weight_, 0, rows);
}

Norm::Norm(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
           std::string_view kind, double epsilon)
    : context_(context),
      epsilon_(epsilon),
      weight_(&add_parameter(make_parameter(context, plan, name + ".weight"))),
      bias_(nullptr) {
  PENTATRON_CHECK(kind == "LayerNorm" || kind == "RMSNorm", kConfig,
                  "--normalization must be LayerNorm or RMSNorm, not '{}'", kind);
  if (kind == "LayerNorm") bias_ = &add_parameter(make_parameter(context, plan, name + ".bias"));
}

Tensor Norm::forward(const Tensor& x_th, nn::StepContext& step) {
  return bias_ == nullptr
             ? ops::rms_norm(x_th, *weight_, epsilon_, step.policy.statistics, step.scope)
             : ops::layer_norm(x_th, *weight_, *bias_, epsilon_, step.policy.statistics,
                               step.scope);
}

ResidualDropout::ResidualDropout(const LeafContext& context, double probability, std::string site)
    : context_(context), probability_(probability), site_(std::move(site)) {}

Tensor ResidualDropout::drop(const Tensor& x_th, nn::StepContext& step) {
  if (probability_ == 0.0 || !step.training()) return x_th;
  // Every channel of a row is here, so the first one is the global channel 0.
  const LeafContext::Rows rows = context_.local_rows(step.batch.num_tokens);
  return ops::dropout(x_th, probability_, make_site(step.seed, site_),
                      step.batch.sample_ids.narrow(0, rows.begin, rows.size),
                      step.batch.token_index.narrow(0, rows.begin, rows.size), 0);
}

Tensor ResidualDropout::forward(const Tensor& x_th, const Tensor& residual_th,
                                nn::StepContext& step) {
  return residual_th.add(drop(x_th, step));
}

CoreAttention::CoreAttention(const LeafContext& context, const ColumnLinear& qkv, Options options)
    : context_(context),
      options_(std::move(options)),
      head_begin_(qkv.part_begin(0) / options_.head_dim) {
  for (std::size_t part = 0; part < 3; ++part) {
    PENTATRON_CHECK(
        qkv.part_width(part) % options_.head_dim == 0, kConfig,
        "the {} channels of this rank hold no whole heads of --kv-channels {}: the heads "
        "must divide by --tensor-model-parallel-size {}",
        qkv.part_width(part), options_.head_dim, context_.size("tp"));
  }
}

Tensor CoreAttention::forward(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                              nn::StepContext& step) {
  ops::AttentionOptions attention;
  attention.scale = 1.0 / std::sqrt(static_cast<double>(options_.head_dim));
  attention.causal = true;
  attention.statistics = step.policy.statistics;
  Tensor out_tnd;
  if (step.kv_cache != nullptr) {
    const nn::KvCache::View all = step.kv_cache->append(options_.cache_layer, k_tgd, v_tgd);
    out_tnd = ops::attention_with_cache(q_tnd, all.k_sgd, all.v_sgd, attention);
  } else {
    if (step.training() && options_.dropout > 0.0) {
      attention.dropout.p = options_.dropout;
      attention.dropout.site = make_site(step.seed, options_.site);
      attention.dropout.head_begin = head_begin_;
    }
    attention.max_logit = step.max_attention_logit;
    out_tnd = ops::attention(q_tnd, k_tgd, v_tgd, step.batch, attention, step.scope);
  }
  return out_tnd.reshape({out_tnd.size(0), out_tnd.size(1) * out_tnd.size(2)});
}

}  // namespace pentatron::parallel_layers
