// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/core_attention.h"

#include <algorithm>
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

std::string max_logits_of(const std::string& name) { return name + ".max_logits"; }

CoreAttention::CoreAttention(const LeafContext& context, const nn::ParameterPlan& plan,
                             const std::string& name, const ColumnLinear& qkv, Options options)
    : context_(context),
      options_(std::move(options)),
      head_begin_(qkv.part_begin(0) / options_.head_dim),
      own_heads_(qkv.part_width(0) / options_.head_dim),
      max_logits_(options_.tells_each_head ? max_logits_of(name) : "") {
  declare_logits(qkv);
  for (std::size_t part = 0; part < std::min<std::size_t>(3, qkv.num_parts()); ++part) {
    PENTATRON_CHECK(
        qkv.part_width(part) % options_.head_dim == 0, kConfig,
        "the {} channels of this rank hold no whole heads of --kv-channels {}: the heads "
        "must divide by --tensor-model-parallel-size {}",
        qkv.part_width(part), options_.head_dim, context_.size("tp"));
  }
  if (options_.sink == Sink::kZero) {
    zero_sink_n_ = tensor::zeros({own_heads_}, context_.policy().statistics, context_.device());
  } else if (options_.sink == Sink::kLearned) {
    learned_sink_ = &add_parameter(make_parameter(context, plan, name + ".softmax_offset"));
  }
  if (!options_.alibi) return;
  const std::int64_t all_heads = qkv.part_total(0) / options_.head_dim;
  const std::vector<double> slopes = ops::alibi_slopes(all_heads);
  const auto begin = slopes.begin() + head_begin_;
  const std::vector<double> own(begin, begin + own_heads_);
  alibi_n_ = tensor::from_vector(own).to(context_.device());
}

void CoreAttention::declare_logits(const ColumnLinear& qkv) {
  declare_scalar({.name = kMaxAttentionLogit, .kind = nn::ScalarKind::kMax, .on_request = true});
  if (max_logits_.empty()) return;
  // A vector, which is logged nowhere, has at least two elements.
  const std::int64_t heads = qkv.part_total(0) / options_.head_dim;
  declare_scalar({.name = max_logits_,
                  .kind = nn::ScalarKind::kMax,
                  .size = std::max<std::int64_t>(heads, 2)});
}

Tensor CoreAttention::head_logits(const nn::StepContext& step) const {
  if (max_logits_.empty() || step.phase != nn::Phase::kTrain) return {};
  const Tensor all = step.max_slot(max_logits_);
  return all.defined() ? all.narrow(0, head_begin_, own_heads_) : Tensor();
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
  attention.alibi_scale = options_.alibi_scale;
  attention.alibi_in_bf16 = options_.alibi_in_bf16;
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
    const Tensor of_heads = head_logits(step);
    attention.max_logit = of_heads.defined() ? of_heads : step.max_slot(kMaxAttentionLogit);
    const SequenceLayout& rows = step.batch.sequence(options_.sequence);
    out_tnd = rows.cut() == nullptr
                  ? ops::attention(q_tnd, k_tgd, v_tgd, rows, attention, step.scope)
                  : context_attention(options_.context_comm, q_tnd, k_tgd, v_tgd, rows, attention,
                                      step.scope);
    const bool both = of_heads.defined() && step.max_slot(kMaxAttentionLogit).defined();
    if (both) step.add_max(kMaxAttentionLogit, of_heads.max());
  }
  return out_tnd.reshape({out_tnd.size(0), out_tnd.size(1) * out_tnd.size(2)});
}

}  // namespace pentatron::parallel_layers
