// SPDX-License-Identifier: Apache-2.0
// Attention from batched products against the CPU's blocked kernel: the cards' face of fp32 and
// fp64 runs on every device.
#include "pentatron/ops/attention_math.h"

#include "pentatron/ops/cpu_ops.h"
#include "pentatron/ops/testing.h"

namespace pentatron::ops {
namespace {

using testing::expect_close;
using testing::normal;

struct MathCase {
  std::vector<std::int64_t> cu_seqlens;
  std::int64_t heads, kv_heads, d;
  bool causal;
  std::int64_t max_scores;
};

AttentionPlan plan_of(const MathCase& c) {
  AttentionPlan plan;
  plan.options = {.scale = 0.3, .causal = c.causal};
  for (std::size_t i = 0; i + 1 < c.cu_seqlens.size(); ++i) {
    const std::int64_t begin = c.cu_seqlens[i], length = c.cu_seqlens[i + 1] - begin;
    plan.segments.push_back({begin, length, begin, length});
  }
  return plan;
}

TEST(AttentionMath, EqualsTheBlockedKernel) {
  const std::vector<MathCase> cases = {
      {{0, 37}, 3, 3, 5, true, 1 << 20},        {{0, 5, 6, 6, 41}, 6, 2, 8, true, 1 << 20},
      {{0, 9, 50}, 4, 1, 3, true, 7 * 41 * 4},  // seven queries a block
      {{0, 9, 50}, 4, 2, 3, false, 7 * 41 * 4}, {{0, 30}, 2, 2, 4, true, 1},  // one query a block
      {{0, 0}, 2, 1, 4, true, 1 << 20},
  };
  for (const MathCase& c : cases) {
    for (const DType dtype : {DType::Double, DType::Float}) {
      const double tolerance = dtype == DType::Double ? 1e-13 : 2e-6;
      const std::int64_t t = c.cu_seqlens.back();
      // Parts of one tensor, as in the attention block.
      const Tensor qkv = normal({t, c.heads + 2 * c.kv_heads, c.d}, 1, dtype);
      const Tensor q = qkv.narrow(1, 0, c.heads), k = qkv.narrow(1, c.heads, c.kv_heads);
      const Tensor v = qkv.narrow(1, c.heads + c.kv_heads, c.kv_heads);
      const Tensor g = normal({t, c.heads, c.d}, 2, dtype);
      const AttentionPlan plan = plan_of(c);
      const AttentionOutput expected = cpu::attention_forward(plan, q, k, v);
      const AttentionOutput out = attention_math_forward(plan, q, k, v, c.max_scores);
      expect_close(out.out_tnd, expected.out_tnd, tolerance, "output");
      expect_close(out.lse_nt, expected.lse_nt, tolerance, "log-sum-exp");
      const AttentionGradients a = cpu::attention_backward(plan, q, k, v, expected, g);
      const AttentionGradients b =
          attention_math_backward(plan, q, k, v, out.out_tnd, out.lse_nt, g, c.max_scores);
      expect_close(b.dq_tnd, a.dq_tnd, tolerance, "gradient of q");
      expect_close(b.dk_tgd, a.dk_tgd, tolerance, "gradient of k");
      expect_close(b.dv_tgd, a.dv_tgd, tolerance, "gradient of v");
    }
  }
}

// Cached keys: the last query sees all of them.
TEST(AttentionMath, LastQueriesOverAllKeys) {
  const Tensor q = normal({300, 4, 6}, 1), k = normal({300, 2, 6}, 2), v = normal({300, 2, 6}, 3);
  for (const auto& [begin, end] : {std::pair{299, 300}, {290, 300}, {0, 1}, {100, 271}}) {
    AttentionPlan plan;
    plan.options = {.scale = 0.3, .causal = true};
    plan.segments = {{0, end - begin, 0, end}};
    const Tensor queries = q.narrow(0, begin, end - begin), keys = k.narrow(0, 0, end);
    const Tensor values = v.narrow(0, 0, end);
    expect_close(attention_math_forward(plan, queries, keys, values, 1000).out_tnd,
                 cpu::attention_forward(plan, queries, keys, values).out_tnd, 1e-13, "output");
  }
}

}  // namespace
}  // namespace pentatron::ops
