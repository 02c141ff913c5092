// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "pentatron/ops/scope.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/tensor/random.h"
#include "pentatron/tensor/sequence_layout.h"

namespace pentatron::ops {

struct AttentionDropout {
  double p = 0.0;
  RngSite site = {};
  std::int64_t head_begin = 0;  // global number of q head 0 on this rank
};

struct AttentionOptions {
  double scale = 1.0;  // usually 1/sqrt(head_dim)
  bool causal = true;
  // The keys are a part of those that the queries see (merge_attention): outputs and gradients come
  // in the statistics dtype as far as a device has them so, and backward gets the output and the
  // log-sum-exp of all keys.
  bool partial = false;
  AttentionDropout dropout = {};  // p == 0: none
  // Attention with linear biases: a fp64 slope for each query head [n] on the device of q; a score
  // of a query falls by slope * |its place - the key's| inside the segment. Undefined: none.
  Tensor alibi_n = {};
  // What ALiBi takes off is multiplied by it.
  double alibi_scale = 1.0;
  // ALiBi in bf16, as Falcon has it: slope, place inside the segment and their product are rounded,
  // and a score falls by |the query's product - the key's|.
  bool alibi_in_bf16 = false;
  // Biases by distance [n, 2 m + 1] on the device of q, in the computing dtype: to the score of a
  // key that stands d places behind its query inside the segment (d < 0: before it) column m + d is
  // added, beyond m the outermost one. They may belong to the graph (relative_bias). Undefined:
  // none.
  Tensor bias_nd = {};
  DType statistics = DType::Float;
  // Where defined: raised to the largest score (scaled, capped, biased) of any query and a key that
  // it sees. fp64 on q's device: a scalar, or [n] of each head. GPUs compute the scores once more.
  Tensor max_logit = {};
  // How many keys before its own place a query sees at most (sliding window); -1: all.
  std::int64_t window = -1;
  // Above 0: scores become softcap * tanh(score / softcap), before biases and mask (Gemma Team,
  // "Gemma 2", 2024).
  double softcap = 0.0;
  // A sink for each query head [n] on the device of q: one more logit in the softmax, with a value
  // of zero, so that probabilities of keys add up to less than one (E. Miller, "Attention is off by
  // one", 2023; G. Xiao et al., "Efficient streaming language models with attention sinks", 2024).
  // It may belong to the graph (sink_logits). Undefined: none.
  Tensor sink_n = {};
};

// The slopes of `num_heads` heads (O. Press, N. Smith, M. Lewis, "Train Short, Test Long", 2022):
// with p the largest power of two in num_heads, 2^(-8 i / p) for i = 1..p, then every other one of
// those for 2 p heads.
[[nodiscard]] std::vector<double> alibi_slopes(std::int64_t num_heads);

// softmax(scale * q k^T + mask) v inside each segment of layout.attention(), blocked (memory linear
// in tokens: keeps q, k, v, out and the log-sum-exp). q [t, n, d] holds the layout's rows, k and v
// [s, g, d] those rows too, or the keys of a cross layout (SequenceLayout::with_keys), with n
// divisible by g (query head j uses kv head j / (n/g)); heads of v may have another d than those of
// q and k, and out [t, n, d] has v's (GPUs fill the smaller heads with zeros for the fused
// kernels). A causal mask ends with the
// last query seeing the last key; queries that see none give 0. Dropout mask on probabilities:
// Philox(site.key, {key index / 8, query index, sample id low, sample id high << 20 ^ head}),
// indices inside the sample, the sample that of the query; kept values are scaled by 1/(1-p). q, k,
// v in one dtype, that of out. Shapes or segments that do not fit, or rows that are a rank's share
// of a sequence (SequenceLayout::cut): kInternal. On GPUs dropout runs through the library's
// products, several times slower than the fused kernels without it.
[[nodiscard]] Tensor attention(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                               const SequenceLayout& layout, const AttentionOptions& options,
                               const Scope& scope = {});

// Forward only, with cached keys: q [1.., n, d] of the newest tokens of one sequence, k, v [s, g,
// d] of all tokens so far; the last query sees all keys. No dropout: kInternal. Used by generation.
[[nodiscard]] Tensor attention_with_cache(const Tensor& q_tnd, const Tensor& k_sgd,
                                          const Tensor& v_sgd, const AttentionOptions& options);

}  // namespace pentatron::ops
