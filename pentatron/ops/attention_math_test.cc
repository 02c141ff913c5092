// SPDX-License-Identifier: Apache-2.0
// Attention from batched products against the CPU's blocked kernel: the CUDA implementation of fp32
// and fp64 runs on every device.
#include "pentatron/ops/attention_math.h"

#include <algorithm>
#include <limits>

#include "pentatron/ops/cpu_ops.h"
#include "pentatron/ops/testing.h"

namespace pentatron::ops {
namespace {

using testing::expect_close;
using testing::normal;

struct MathCase {
  std::vector<std::int64_t> boundaries;
  std::int64_t heads, kv_heads, d;
  bool causal;
  std::int64_t max_scores;
  std::vector<std::int64_t> k_boundaries = {};  // empty: the same rows
  std::int64_t window = -1;
  double softcap = 0.0;
  std::int64_t furthest = 0;  // of the biases by distance; 0: none
  bool alibi = false;         // in bf16
  std::int64_t v_d = 0;       // channels of values; 0: d
};

void add_alibi(AttentionOptions& options, std::int64_t heads) {
  options.alibi_n = tensor::from_vector(alibi_slopes(heads));
  options.alibi_scale = 0.4;
  options.alibi_in_bf16 = true;
}

// Biases [n, 2 furthest + 1]; undefined: none.
Tensor biases_of(const MathCase& c, DType dtype) {
  return c.furthest == 0 ? Tensor() : normal({c.heads, 2 * c.furthest + 1}, 3, dtype);
}

AttentionPlan plan_of(const MathCase& c) {
  SequenceLayout layout({.boundaries = c.boundaries});
  if (!c.k_boundaries.empty()) {
    layout = layout.with_keys(SequenceLayout({.boundaries = c.k_boundaries}));
  }
  return {.rows = layout.attention(),
          .options = {.scale = 0.3, .causal = c.causal, .window = c.window, .softcap = c.softcap}};
}

// Queries that see no key have minus infinity.
Tensor finite_of(const Tensor& lse_nt) {
  return lse_nt.masked_fill(lse_nt.eq(-std::numeric_limits<double>::infinity()), 0.0);
}

TEST(AttentionMath, EqualsTheBlockedKernel) {
  const std::vector<MathCase> cases = {
      {{0, 37}, 3, 3, 5, true, 1 << 20},
      {{0, 5, 6, 6, 41}, 6, 2, 8, true, 1 << 20},
      {{0, 9, 50}, 4, 1, 3, true, 7 * 41 * 4},  // seven queries a block
      {{0, 9, 50}, 4, 2, 3, false, 7 * 41 * 4},
      {{0, 30}, 2, 2, 4, true, 1},  // one query a block
      {{0, 0}, 2, 1, 4, true, 1 << 20},
      {{0, 5, 20}, 4, 2, 8, false, 1 << 20, {0, 11, 13}},
      {{0, 5, 12}, 4, 2, 8, true, 7 * 20 * 4, {0, 11, 31}},
      {{0, 9, 20, 24}, 2, 1, 8, true, 1 << 20, {0, 3, 14, 14}},
      {{0, 9, 20, 24}, 2, 1, 8, true, 2 * 11, {0, 3, 14, 14}},  // blocks that see no key
      {{0, 5, 6, 6, 41}, 6, 2, 8, true, 1 << 20, {}, 1},
      {{0, 9, 50}, 4, 1, 3, true, 7 * 41 * 4, {}, 7},
      {{0, 700}, 2, 1, 4, true, 1 << 20, {}, 30},  // blocks that leave keys out
      {{0, 9, 20, 24}, 2, 1, 8, true, 2 * 11, {0, 3, 14, 14}, 2},
      {{0, 9, 50}, 4, 2, 3, false, 7 * 41 * 4, {}, 5},
      {{0, 9, 50}, 4, 2, 3, true, 7 * 41 * 4, {}, -1, 1.3},
      {{0, 9, 50}, 4, 2, 3, true, 1 << 20, {}, 6, 0.7},
      {{0, 9, 50}, 4, 2, 3, true, 7 * 41 * 4, {}, -1, 0.0, 6},
      {{0, 9, 50}, 4, 2, 3, false, 1 << 20, {}, -1, 1.3, 11},
      {{0, 9, 50}, 4, 2, 3, false, 7 * 41 * 4, {}, -1, 0.0, 100},
      {{0, 700}, 2, 1, 4, true, 1 << 20, {}, 300, 0.0, 40},
      {{0, 5, 12}, 4, 2, 8, true, 7 * 20 * 4, {0, 11, 31}, -1, 0.0, 4},
      {{0, 9, 20, 24}, 2, 1, 8, true, 2 * 11, {0, 3, 14, 14}, -1, 0.0, 5},
      {{0, 9, 50}, 16, 4, 3, true, 7 * 41 * 16, {}, -1, 0.0, 0, true},
      {{0, 700}, 2, 1, 4, false, 1 << 20, {}, 300, 0.0, 0, true},
      {{0, 9, 50}, 4, 2, 6, true, 7 * 41 * 4, {}, -1, 0.0, 0, false, 4},
      {{0, 9, 50}, 4, 4, 3, false, 1 << 20, {}, 7, 1.3, 5, false, 8},
  };
  for (const MathCase& c : cases) {
    for (const DType dtype : {DType::Double, DType::Float}) {
      const double tolerance = dtype == DType::Double ? 1e-13 : 2e-6;
      const std::int64_t t = c.boundaries.back();
      const std::int64_t keys = c.k_boundaries.empty() ? t : c.k_boundaries.back();
      // Parts of one tensor, as in the attention block.
      const Tensor qkv = normal({std::max(t, keys), c.heads + 2 * c.kv_heads, c.d}, 1, dtype);
      const Tensor q = qkv.narrow(0, 0, t).narrow(1, 0, c.heads);
      const Tensor k = qkv.narrow(0, 0, keys).narrow(1, c.heads, c.kv_heads);
      const Tensor v = c.v_d > 0
                           ? normal({keys, c.kv_heads, c.v_d}, 6, dtype)
                           : qkv.narrow(0, 0, keys).narrow(1, c.heads + c.kv_heads, c.kv_heads);
      const Tensor g = normal({t, c.heads, v.size(2)}, 2, dtype);
      AttentionPlan plan = plan_of(c);
      plan.options.bias_nd = biases_of(c, dtype);
      if (c.alibi) add_alibi(plan.options, c.heads);
      const AttentionOutput expected = cpu::attention_forward(plan, q, k, v);
      const AttentionOutput out = attention_math_forward(plan, q, k, v, c.max_scores);
      expect_close(out.out_tnd, expected.out_tnd, tolerance, "output");
      expect_close(finite_of(out.lse_nt), finite_of(expected.lse_nt), tolerance, "log-sum-exp");
      const AttentionGradients a = cpu::attention_backward(plan, q, k, v, expected, g);
      const AttentionGradients b =
          attention_math_backward(plan, q, k, v, out.out_tnd, out.lse_nt, g, c.max_scores);
      expect_close(b.dq_tnd, a.dq_tnd, tolerance, "gradient of q");
      expect_close(b.dk_tgd, a.dk_tgd, tolerance, "gradient of k");
      expect_close(b.dv_tgd, a.dv_tgd, tolerance, "gradient of v");
      EXPECT_EQ(a.dbias_nd.defined(), c.furthest > 0);
      if (c.furthest > 0) expect_close(b.dbias_nd, a.dbias_nd, tolerance, "gradient of the biases");
    }
  }
}

// A window over keys that stand before others, which are not here: some queries see none of them.
TEST(AttentionMath, WindowsReachOverRowsThatAreNotHere) {
  const Tensor q = normal({30, 16, 6}, 1), k = normal({20, 2, 6}, 2), v = normal({20, 2, 6}, 3);
  const Tensor g = normal({30, 16, 6}, 4);
  for (const std::int64_t apart : {0, 1, 9, 60}) {
    for (const std::int64_t window : {0, 5, 12, 25, 200}) {
      AttentionPlan plan{
          .rows = make_segments({{0, 12, 0, 8, apart, 2 * apart}, {12, 18, 8, 12, apart, 77}},
                                nullptr, nullptr),
          .options = {.scale = 0.3, .causal = false, .partial = true}};
      plan.options.window = window;
      plan.options.bias_nd = normal({16, 2 * 13 + 1}, 5);
      add_alibi(plan.options, 16);
      const AttentionOutput expected = cpu::attention_forward(plan, q, k, v);
      const AttentionOutput out = attention_math_forward(plan, q, k, v);
      if (window == 5 && apart == 9) {
        EXPECT_TRUE(expected.lse_nt.isinf().any().item<bool>());
        EXPECT_FALSE(expected.lse_nt.isinf().all().item<bool>());
      }
      EXPECT_TRUE(out.lse_nt.isinf().equal(expected.lse_nt.isinf()));
      expect_close(out.out_tnd, expected.out_tnd, 1e-13, "output");
      expect_close(finite_of(out.lse_nt), finite_of(expected.lse_nt), 1e-13, "log-sum-exp");
      const AttentionGradients a = cpu::attention_backward(plan, q, k, v, expected, g);
      const AttentionGradients b =
          attention_math_backward(plan, q, k, v, out.out_tnd, out.lse_nt, g);
      expect_close(b.dq_tnd, a.dq_tnd, 1e-13, "gradient of q");
      expect_close(b.dk_tgd, a.dk_tgd, 1e-13, "gradient of k");
      expect_close(b.dv_tgd, a.dv_tgd, 1e-13, "gradient of v");
      // Zero where each query sees one key.
      const double largest = std::max(1.0, a.dbias_nd.abs().max().item<double>());
      EXPECT_LE(b.dbias_nd.sub(a.dbias_nd).abs().max().item<double>(), 1e-13 * largest);
    }
  }
}

// Cached keys: the last query sees all of them.
TEST(AttentionMath, LastQueriesOverAllKeys) {
  const Tensor q = normal({300, 4, 6}, 1), k = normal({300, 2, 6}, 2), v = normal({300, 2, 6}, 3);
  for (const auto& [begin, end] : {std::pair{299, 300}, {290, 300}, {0, 1}, {100, 271}}) {
    const SequenceLayout newest({.boundaries = {0, end - begin}});
    const SequenceLayout all({.boundaries = {0, end}});
    const AttentionPlan plan{.rows = newest.with_keys(all).attention(),
                             .options = {.scale = 0.3, .causal = true}};
    const Tensor queries = q.narrow(0, begin, end - begin), keys = k.narrow(0, 0, end);
    const Tensor values = v.narrow(0, 0, end);
    expect_close(attention_math_forward(plan, queries, keys, values, 1000).out_tnd,
                 cpu::attention_forward(plan, queries, keys, values).out_tnd, 1e-13, "output");
  }
}

}  // namespace
}  // namespace pentatron::ops
