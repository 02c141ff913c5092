// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/core_attention.h"

#include <cmath>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/nn/kv_cache.h"
#include "pentatron/ops/attention.h"
#include "pentatron/ops/attention_sink.h"
#include "pentatron/parallel_layers/context_attention.h"
#include "pentatron/parallel_layers/make_parameter.h"
#include "pentatron/parallel_layers/relative_position.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/random.h"

namespace pentatron::parallel_layers {

CoreAttention::CoreAttention(const LeafContext& context, const nn::ParameterPlan& plan,
                             const std::string& name, const ColumnLinear& qkv, Options options)
    : context_(context),
      options_(std::move(options)),
      head_begin_(qkv.part_begin(0) / options_.head_dim) {
  declare_scalar({.name = kMaxAttentionLogit, .kind = nn::ScalarKind::kMax, .on_request = true});
  for (std::size_t part = 0; part < 3; ++part) {
    PENTATRON_CHECK(
        qkv.part_width(part) % options_.head_dim == 0, kConfig,
        "the {} channels of this rank hold no whole heads of --kv-channels {}: the heads "
        "must divide by --tensor-model-parallel-size {}",
        qkv.part_width(part), options_.head_dim, context_.size("tp"));
  }
  const std::int64_t own_heads = qkv.part_width(0) / options_.head_dim;
  if (options_.sink == Sink::kZero) {
    zero_sink_n_ = tensor::zeros({own_heads}, context_.policy().statistics, context_.device());
  } else if (options_.sink == Sink::kLearned) {
    learned_sink_ = &add_parameter(make_parameter(context, plan, name + ".softmax_offset"));
  }
  if (!options_.alibi) return;
  const std::int64_t all_heads = qkv.part_total(0) / options_.head_dim;
  const std::vector<double> slopes = ops::alibi_slopes(all_heads);
  const auto begin = slopes.begin() + head_begin_;
  const std::vector<double> own(begin, begin + own_heads);
  alibi_n_ = tensor::from_vector(own).to(context_.device());
}

Tensor CoreAttention::sink(const nn::StepContext& step) const {
  return learned_sink_ == nullptr ? zero_sink_n_
                                  : ops::sink_logits(*learned_sink_, step.policy.statistics);
}

Tensor CoreAttention::forward(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                              nn::StepContext& step) {
  ops::AttentionOptions attention;
  attention.scale = options_.scale > 0.0 ? options_.scale
                                         : 1.0 / std::sqrt(static_cast<double>(options_.head_dim));
  attention.causal = options_.causal;
  attention.statistics = step.policy.statistics;
  attention.alibi_n = alibi_n_;
  attention.window = options_.window;
  attention.softcap = options_.softcap;
  attention.sink_n = sink(step);
  if (options_.relative != nullptr) attention.bias_nd = options_.relative->biases();
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
    attention.max_logit = step.max_slot(kMaxAttentionLogit);
    const SequenceLayout& rows = step.batch.sequence(options_.sequence);
    out_tnd = rows.cut() == nullptr
                  ? ops::attention(q_tnd, k_tgd, v_tgd, rows, attention, step.scope)
                  : context_attention(options_.context_comm, q_tnd, k_tgd, v_tgd, rows, attention,
                                      step.scope);
  }
  return out_tnd.reshape({out_tnd.size(0), out_tnd.size(1) * out_tnd.size(2)});
}

}  // namespace pentatron::parallel_layers
