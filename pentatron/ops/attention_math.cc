// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/attention_math.h"

#include <algorithm>
#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/ops/attention_window.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/random_table.h"

namespace pentatron::ops {
namespace {

// Queries [q_begin, q_begin + q_len) of a segment and the keys [k_begin, k_begin + k_len) of it
// that any of them sees.
struct QueryBlock {
  AttentionSegment segment;
  std::int64_t q_begin, q_len, k_begin, k_len;
};

// With a window blocks of queries are no longer than the window or this: what they compute in vain
// stays in proportion.
constexpr std::int64_t kLeastWindowBlock = 256;

// Calls body(block) over all segments.
template <typename F>
void over_blocks(const AttentionPlan& plan, std::int64_t heads, std::int64_t max_scores, F body) {
  for (const AttentionSegment& s : plan.rows->segments) {
    if (s.q_len == 0 || s.k_len == 0) continue;
    std::int64_t step = std::clamp<std::int64_t>(
        max_scores / std::max<std::int64_t>(heads * s.k_len, 1), 1, s.q_len);
    if (plan.options.window >= 0) {
      step = std::min(step, std::max(plan.options.window, kLeastWindowBlock));
    }
    for (std::int64_t at = 0; at < s.q_len; at += step) {
      const std::int64_t length = std::min(step, s.q_len - at);
      const KeyRange seen = seen_keys(s, at, length, plan.options);
      if (seen.begin == seen.end) continue;
      body(QueryBlock{.segment = s,
                      .q_begin = at,
                      .q_len = length,
                      .k_begin = seen.begin,
                      .k_len = seen.end - seen.begin});
    }
  }
}

// Rows of x [t, n, d] for a block's queries as [g, r * q_len, d]: the r query heads of a kv head
// stand below each other, so that they share one product.
Tensor query_rows(const Tensor& x_tnd, const QueryBlock& b, std::int64_t kv_heads) {
  const std::int64_t d = x_tnd.size(2), r = x_tnd.size(1) / kv_heads;
  return x_tnd.narrow(0, b.segment.q_begin + b.q_begin, b.q_len)
      .reshape({b.q_len, kv_heads, r, d})
      .permute({1, 2, 0, 3})
      .reshape({kv_heads, r * b.q_len, d});
}
// The way back: [g, r * q_len, d] into the block's rows of x [t, n, d].
void put_query_rows(const Tensor& rows_gqd, const QueryBlock& b, const Tensor& x_tnd) {
  const std::int64_t kv_heads = rows_gqd.size(0), heads = x_tnd.size(1), d = x_tnd.size(2);
  x_tnd.narrow(0, b.segment.q_begin + b.q_begin, b.q_len)
      .copy_(rows_gqd.view({kv_heads, heads / kv_heads, b.q_len, d})
                 .permute({2, 0, 1, 3})
                 .reshape({b.q_len, heads, d}));
}

// [g, k_len, d] view of the block's keys or values.
Tensor key_rows(const Tensor& x_tgd, const QueryBlock& b) {
  return x_tgd.narrow(0, b.segment.k_begin + b.k_begin, b.k_len).transpose(0, 1);
}

// scale q k^T, capped: [g, r * q_len, k_len].
Tensor plain_scores(const Tensor& q_gqd, const Tensor& k_gkd, const AttentionOptions& options) {
  const Tensor scores = q_gqd.bmm(k_gkd.transpose(1, 2)).mul(options.scale);
  const double cap = options.softcap;
  return cap > 0.0 ? scores.div(cap).tanh().mul(cap) : scores;
}

// What ALiBi takes off the scores of queries [q_len, 1] and keys [1, k_len], numbers of rows of the
// segment's keys that are here: [g, r, q_len, k_len].
Tensor alibi_of(const Tensor& query, const Tensor& key, const AttentionSegment& s,
                std::int64_t kv_heads, const AttentionOptions& options) {
  const Tensor slopes = options.alibi_n.view({kv_heads, -1, 1, 1});
  if (!options.alibi_in_bf16) {
    return key.sub(query).sub(s.apart).abs().mul(slopes).mul(options.alibi_scale);
  }
  const Tensor narrow = slopes.to(DType::BFloat16);
  const auto bias = [&](const Tensor& row, std::int64_t before) {
    return row.add(before).to(DType::BFloat16).mul(narrow).to(slopes.scalar_type());
  };
  return bias(key, s.before).sub(bias(query, s.before + s.apart)).abs().mul(options.alibi_scale);
}

// The same - slope |distance| with minus infinity where a query does not see a key.
Tensor masked_scores(const Tensor& plain_gqk, const QueryBlock& b,
                     const AttentionOptions& options) {
  const bool biased = options.alibi_n.defined() || options.bias_nd.defined();
  if (!options.causal && !biased && options.window < 0) return plain_gqk;
  const Device device = plain_gqk.device();
  const std::int64_t kv_heads = plain_gqk.size(0);
  Tensor scores = plain_gqk.view({kv_heads, -1, b.q_len, b.k_len});
  // Query i of the block sees the keys up to i + offset.
  const std::int64_t offset = b.q_begin + b.segment.k_len - b.segment.q_len;
  const Tensor query = tensor::arange(b.q_len, DType::Long, device).add(offset).unsqueeze(1);
  const Tensor key = tensor::arange(b.k_len, DType::Long, device).add(b.k_begin).unsqueeze(0);
  if (options.alibi_n.defined()) {
    const Tensor less = alibi_of(query, key, b.segment, kv_heads, options);
    scores = scores.sub(less.to(scores.scalar_type()));
  }
  if (options.bias_nd.defined()) {
    const std::int64_t furthest = options.bias_nd.size(1) / 2;
    const Tensor distance = key.sub(query).sub(b.segment.apart).clamp(-furthest, furthest);
    const Tensor columns = distance.add(furthest).reshape({b.q_len * b.k_len});
    scores =
        scores.add(options.bias_nd.index_select(1, columns).view({kv_heads, -1, b.q_len, b.k_len}));
  }
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  if (options.causal) scores = scores.masked_fill(key.gt(query), kHidden);
  if (options.window >= 0) {
    const Tensor first = query.add(b.segment.apart - options.window);
    scores = scores.masked_fill(key.lt(first), kHidden);
  }
  return scores.view({kv_heads, -1, b.k_len});
}

// Adds the gradient of a block's scores [g, r * q_len, k_len] to that of the biases by distance.
void add_bias_gradient(const Tensor& ds_gqk, const QueryBlock& b, const Tensor& dbias_nd) {
  const std::int64_t heads = dbias_nd.size(0), distances = dbias_nd.size(1);
  const std::int64_t q = b.q_len, k = b.k_len, all = q + k - 1;
  // The last query on top, each further row one place more to the right: keys of one distance stand
  // in one column.
  const Tensor shifted = tensor::zeros({heads, q, q + k}, ds_gqk.scalar_type(), ds_gqk.device());
  shifted.narrow(2, 0, k).copy_(ds_gqk.view({heads, q, k}).flip(IntList{1}));
  const Tensor sums = shifted.view({heads, q * (q + k)})
                          .narrow(1, 0, q * all)
                          .view({heads, q, all})
                          .sum(IntList{1});
  // Where the first of these columns stands among the biases, and which of them lie beyond either
  // end.
  const std::int64_t query = b.q_begin + b.segment.k_len - b.segment.q_len + b.segment.apart;
  const std::int64_t first = distances / 2 + b.k_begin - query - (q - 1);
  const std::int64_t before = std::clamp<std::int64_t>(-first, 0, all);
  const std::int64_t behind = std::clamp<std::int64_t>(distances - first, before, all);
  const auto add = [&](std::int64_t column, const Tensor& part) {
    dbias_nd.narrow(1, column, part.size(1)).add_(part);
  };
  if (before > 0) add(0, sums.narrow(1, 0, before).sum(IntList{1}, /*keepdim=*/true));
  if (behind > before) add(first + before, sums.narrow(1, before, behind - before));
  if (behind < all) {
    add(distances - 1, sums.narrow(1, behind, all - behind).sum(IntList{1}, /*keepdim=*/true));
  }
}

// Log-sum-exps as they are taken off scores: queries that see no key have minus infinity, and so
// have their scores.
Tensor subtrahend(const Tensor& lse, const QueryBlock& b, const AttentionOptions& options) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const bool all_see_keys = (!options.causal || b.segment.k_len >= b.segment.q_len) &&
                            (options.window < 0 || b.segment.apart == 0);
  return all_see_keys ? lse : lse.masked_fill(lse.eq(kNone), 0.0);
}

// The block's part of a [n, t] tensor as [g, r * q_len, 1].
Tensor row_values(const Tensor& x_nt, const QueryBlock& b, std::int64_t kv_heads) {
  return x_nt.narrow(1, b.segment.q_begin + b.q_begin, b.q_len).reshape({kv_heads, -1, 1});
}

// Probabilities [g, r * q_len, k_len], or their gradients: what dropout keeps, scaled, in place.
void drop(const Tensor& p_gqk, const AttentionPlan& plan, const QueryBlock& b) {
  const AttentionDropout& dropout = plan.options.dropout;
  if (dropout.p == 0.0) return;
  const AttentionSegments& rows = *plan.rows;
  PENTATRON_CHECK(
      rows.q_places.defined() && rows.k_places.defined(), kUnsupported,
      "attention dropout {} on a GPU where the rows of a sample stand on several ranks: "
      "use --attention-dropout 0 with --context-parallel-size, or --device cpu",
      dropout.p);
  const auto of_queries = [&](const Tensor& t) {
    return t.narrow(0, b.segment.q_begin + b.q_begin, b.q_len);
  };
  const Tensor samples_q = of_queries(rows.q_sample_ids), places_q = of_queries(rows.q_places);
  const Tensor places_k = rows.k_places.narrow(0, b.segment.k_begin + b.k_begin, b.k_len);
  // Heads of a kv head stand below each other.
  tensor::random_table(p_gqk.device())
      .drop_attention(p_gqk.view({-1, b.q_len, b.k_len}),
                      {.site = dropout.site,
                       .threshold = tensor::dropout_threshold(dropout.p),
                       .factor = 1.0 / (1.0 - dropout.p),
                       .head_begin = dropout.head_begin,
                       .sample_ids_q = samples_q,
                       .places_q = places_q,
                       .places_k = places_k});
}

// Raises options.max_logit, where it is asked for.
void note_largest(const Tensor& scores, const AttentionOptions& options) {
  const Tensor& max_logit = options.max_logit;
  if (!max_logit.defined()) return;
  // Query heads of a kv head stand below each other.
  const Tensor largest =
      max_logit.dim() == 0 ? scores.max() : scores.view({max_logit.size(0), -1}).amax(IntList{1});
  max_logit.copy_(max_logit.maximum(largest.to(max_logit.scalar_type())));
}

}  // namespace

void attention_math_max_logit(const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd,
                              std::int64_t max_scores) {
  const std::int64_t heads = q_tnd.size(1), kv_heads = k_tgd.size(1);
  over_blocks(plan, heads, max_scores, [&](const QueryBlock& b) {
    const Tensor plain =
        plain_scores(query_rows(q_tnd, b, kv_heads), key_rows(k_tgd, b), plan.options);
    note_largest(masked_scores(plain, b, plan.options), plan.options);
  });
}

AttentionOutput attention_math_forward(const AttentionPlan& plan, const Tensor& q_tnd,
                                       const Tensor& k_tgd, const Tensor& v_tgd,
                                       std::int64_t max_scores) {
  const std::int64_t heads = q_tnd.size(1), kv_heads = k_tgd.size(1);
  AttentionOutput out{
      .out_tnd =
          tensor::zeros({q_tnd.size(0), heads, v_tgd.size(2)}, q_tnd.scalar_type(), q_tnd.device()),
      .lse_nt = tensor::full({heads, q_tnd.size(0)}, -std::numeric_limits<double>::infinity(),
                             q_tnd.scalar_type(), q_tnd.device()),
      .library = {}};
  over_blocks(plan, heads, max_scores, [&](const QueryBlock& b) {
    const Tensor plain =
        plain_scores(query_rows(q_tnd, b, kv_heads), key_rows(k_tgd, b), plan.options);
    const Tensor scores = masked_scores(plain, b, plan.options);
    note_largest(scores, plan.options);
    const Tensor lse = scores.logsumexp(IntList{-1}, /*keepdim=*/true);
    const Tensor p = scores.sub(subtrahend(lse, b, plan.options)).exp();
    drop(p, plan, b);
    put_query_rows(p.bmm(key_rows(v_tgd, b)), b, out.out_tnd);
    out.lse_nt.narrow(1, b.segment.q_begin + b.q_begin, b.q_len).copy_(lse.view({heads, b.q_len}));
  });
  return out;
}

AttentionGradients attention_math_backward(const AttentionPlan& plan, const Tensor& q_tnd,
                                           const Tensor& k_tgd, const Tensor& v_tgd,
                                           const Tensor& out_tnd, const Tensor& lse_nt,
                                           const Tensor& dout_tnd, std::int64_t max_scores) {
  const std::int64_t heads = q_tnd.size(1), kv_heads = k_tgd.size(1);
  const auto zeros_like = [](const Tensor& x) {
    return tensor::zeros(x.sizes(), x.scalar_type(), x.device());
  };
  AttentionGradients grads{
      .dq_tnd = zeros_like(q_tnd), .dk_tgd = zeros_like(k_tgd), .dv_tgd = zeros_like(v_tgd)};
  const Tensor& bias_nd = plan.options.bias_nd;
  if (bias_nd.defined()) {
    grads.dbias_nd = tensor::zeros(bias_nd.sizes(), bias_nd.scalar_type(), bias_nd.device());
  }
  over_blocks(plan, heads, max_scores, [&](const QueryBlock& b) {
    const Tensor q = query_rows(q_tnd, b, kv_heads), k = key_rows(k_tgd, b);
    const Tensor v = key_rows(v_tgd, b), dout = query_rows(dout_tnd, b, kv_heads);
    const Tensor plain = plain_scores(q, k, plan.options);
    const Tensor p = masked_scores(plain, b, plan.options)
                         .sub(subtrahend(row_values(lse_nt, b, kv_heads), b, plan.options))
                         .exp();
    const Tensor delta =
        dout.mul(query_rows(out_tnd, b, kv_heads)).sum(IntList{-1}, /*keepdim=*/true);
    // What dropout took from the output has no gradient, and no part in delta.
    const Tensor dp = dout.bmm(v.transpose(1, 2));
    drop(dp, plan, b);
    Tensor ds = dp.sub(delta).mul(p);
    if (bias_nd.defined()) add_bias_gradient(ds, b, grads.dbias_nd);
    ds = ds.mul(plan.options.scale);
    const double cap = plan.options.softcap;
    if (cap > 0.0) ds = ds.mul(plain.div(cap).pow(2).neg().add(1.0));
    put_query_rows(ds.bmm(k), b, grads.dq_tnd);
    key_rows(grads.dk_tgd, b).add_(ds.transpose(1, 2).bmm(q));
    drop(p, plan, b);
    key_rows(grads.dv_tgd, b).add_(p.transpose(1, 2).bmm(dout));
  });
  return grads;
}

}  // namespace pentatron::ops
