// SPDX-License-Identifier: Apache-2.0
// What ops_test does not ask of attention: memory, threads, cached keys, odd strides, refusals.
#include "pentatron/ops/attention.h"

#include <cmath>
#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/ops/attention_math.h"
#include "pentatron/ops/attention_plan.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/relative_bias.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/parallel.h"
#include "pentatron/tensor/sequence_cut.h"

namespace pentatron::ops {
namespace {

using testing::expect_close;
using testing::normal;

std::int64_t attention_peak(std::int64_t tokens) {
  constexpr std::int64_t kHeads = 4, kDim = 16;
  const Tensor q = testing::leaf(normal({tokens, kHeads, kDim}, 1, DType::Float));
  const Tensor k = testing::leaf(normal({tokens, 2, kDim}, 2, DType::Float));
  const Tensor v = testing::leaf(normal({tokens, 2, kDim}, 3, DType::Float));
  const Tensor g = normal({tokens, kHeads, kDim}, 4, DType::Float);
  const SequenceLayout layout({.boundaries = {0, tokens}});
  const tensor::MemoryMeter meter;
  run_backward(attention(q, k, v, layout, {.scale = 0.25}), g);
  return meter.peak_bytes();
}

TEST(Memory, AttentionIsLinearInTokens) {
  (void)attention_peak(128);
  const std::int64_t at_4096 = attention_peak(4096), at_8192 = attention_peak(8192);
  EXPECT_GT(at_4096, 4096 * 4 * 16 * 4);
  EXPECT_LT(static_cast<double>(at_8192), 2.1 * static_cast<double>(at_4096));
}

TEST(AttentionWithCache, EqualsTheRowsOfAttention) {
  for (const DType dtype : {DType::Double, DType::Float}) {
    const double tolerance = dtype == DType::Double ? 1e-13 : 1e-6;
    const Tensor q = normal({300, 4, 6}, 1, dtype), k = normal({300, 2, 6}, 2, dtype);
    const Tensor v = normal({300, 2, 6}, 3, dtype);
    const SequenceLayout layout({.boundaries = {0, 300}});
    AttentionOptions options{.scale = 0.5, .alibi_n = tensor::from_vector(alibi_slopes(4))};
    for (const std::int64_t window : {-1, 0, 1, 40, 299, 1000}) {
      options.window = window;
      options.softcap = window == 1 ? 2.0 : 0.0;
      options.sink_n = window == 40 ? normal({4}, 4) : Tensor();
      const Tensor whole = attention(q, k, v, layout, options);
      for (const auto& [begin, end] :
           {std::pair{299, 300}, {0, 300}, {290, 300}, {0, 1}, {130, 131}, {100, 271}}) {
        const Tensor part = attention_with_cache(q.narrow(0, begin, end - begin),
                                                 k.narrow(0, 0, end), v.narrow(0, 0, end), options);
        expect_close(part, whole.narrow(0, begin, end - begin), tolerance, "cached rows");
      }
    }
    EXPECT_THROW((void)attention_with_cache(q, k.narrow(0, 0, 5), v.narrow(0, 0, 5), options),
                 Error);
  }
}

// What no query of a block sees is not read: a NaN there would come through products with zero.
// And cached decoding reads the last window + 1 keys alone.
TEST(AttentionWindow, LeavesOutWhatLiesBefore) {
  constexpr std::int64_t kTokens = 1024, kWindow = 16, kBlock = 128;
  const SequenceLayout layout({.boundaries = {0, kTokens}});
  const Tensor q = normal({kTokens, 2, 8}, 1), k = normal({kTokens, 1, 8}, 2);
  Tensor v = normal({kTokens, 1, 8}, 3);
  v[0].fill_(std::nan(""));
  const AttentionOptions options{.scale = 0.3, .window = kWindow};
  const Tensor x = testing::leaf(q), y = testing::leaf(k), z = testing::leaf(v);
  const Tensor out = attention(x, y, z, layout, options);
  EXPECT_TRUE(out[0].isnan().all().item<bool>());
  EXPECT_TRUE(out.narrow(0, kBlock, kTokens - kBlock).isfinite().all().item<bool>());
  run_backward(out, normal({kTokens, 2, 8}, 4));
  EXPECT_TRUE(x.grad().narrow(0, kBlock, kTokens - kBlock).isfinite().all().item<bool>());
  EXPECT_TRUE(z.grad().narrow(0, 2 * kBlock, kTokens - 2 * kBlock).isfinite().all().item<bool>());
  const auto decoded = [&](std::int64_t length) {
    return attention_with_cache(q.narrow(0, length - 1, 1), k.narrow(0, 0, length),
                                v.narrow(0, 0, length), options);
  };
  EXPECT_TRUE(decoded(kWindow + 1).isnan().any().item<bool>());
  EXPECT_TRUE(decoded(kWindow + 2).isfinite().all().item<bool>());
}

TEST(AttentionWindow, RefusesWhatIsNone) {
  const SequenceLayout layout({.boundaries = {0, 4}});
  const Tensor x = normal({4, 2, 8}, 1);
  EXPECT_THROW((void)attention(x, x, x, layout, {.window = -2}), Error);
  EXPECT_THROW((void)attention(x, x, x, layout, {.softcap = -1.0}), Error);
  EXPECT_THROW((void)attention(x, x, x, layout, {.sink_n = normal({3}, 2)}), Error);
  EXPECT_THROW((void)attention_with_cache(x, x, x, {.sink_n = normal({3}, 2)}), Error);
}

// The paper's values for eight heads, and for twelve: eight and every other one of sixteen.
TEST(Attention, AlibiSlopes) {
  EXPECT_EQ(alibi_slopes(8), (std::vector<double>{1.0 / 2, 1.0 / 4, 1.0 / 8, 1.0 / 16, 1.0 / 32,
                                                  1.0 / 64, 1.0 / 128, 1.0 / 256}));
  const std::vector<double> twelve = alibi_slopes(12);
  ASSERT_EQ(twelve.size(), 12U);
  EXPECT_EQ(twelve[7], 1.0 / 256);
  EXPECT_DOUBLE_EQ(twelve[8], std::pow(2.0, -0.5));
  EXPECT_DOUBLE_EQ(twelve[11], std::pow(2.0, -3.5));
  EXPECT_EQ(alibi_slopes(1), std::vector<double>{1.0 / 256});
}

// What the published formula gives in fp32, computed apart from this code, for the usual 32
// buckets up to 128 tokens.
TEST(RelativeBias, BucketsAreT5s) {
  const std::vector<std::int64_t> decoder = relative_buckets({});
  const auto at = [](const std::vector<std::int64_t>& of, std::int64_t distance) {
    return of.at(static_cast<std::size_t>(distance + static_cast<std::int64_t>(of.size()) / 2));
  };
  ASSERT_EQ(decoder.size(), 257U);
  for (std::int64_t near = 0; near < 16; ++near) EXPECT_EQ(at(decoder, -near), near);
  EXPECT_EQ(at(decoder, 1), 0);
  EXPECT_EQ(at(decoder, 128), 0);
  for (const auto& [distance, bucket] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{16, 16},
                                                          {18, 16},
                                                          {19, 17},
                                                          {20, 17},
                                                          {21, 18},
                                                          {23, 18},
                                                          {24, 19},
                                                          {31, 21},
                                                          {32, 21},
                                                          {64, 26},
                                                          {100, 30},
                                                          {112, 30},
                                                          {113, 31},
                                                          {127, 31},
                                                          {128, 31}}) {
    EXPECT_EQ(at(decoder, -distance), bucket) << distance;
  }
  const std::vector<std::int64_t> encoder = relative_buckets({.bidirectional = true});
  for (const auto& [distance, bucket] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0},
                                                          {7, 7},
                                                          {8, 8},
                                                          {11, 8},
                                                          {12, 9},
                                                          {16, 10},
                                                          {32, 12},
                                                          {64, 14},
                                                          {90, 14},
                                                          {91, 15},
                                                          {128, 15}}) {
    EXPECT_EQ(at(encoder, -distance), bucket) << distance;
    if (distance == 0) continue;
    EXPECT_EQ(at(encoder, distance), bucket + 16) << distance;
  }
  EXPECT_THROW(static_cast<void>(relative_buckets({.num_buckets = 1})), Error);
  EXPECT_THROW(static_cast<void>(relative_buckets({.num_buckets = 32, .max_distance = 16})), Error);
  EXPECT_THROW(static_cast<void>(relative_buckets({.num_buckets = 2, .bidirectional = true})),
               Error);
}

TEST(Attention, ThreadsDoNotChangeABit) {
  const Tensor q = normal({333, 4, 8}, 1, DType::Float), k = normal({333, 2, 8}, 2, DType::Float);
  const Tensor v = normal({333, 2, 8}, 3, DType::Float), g = normal({333, 4, 8}, 4, DType::Float);
  const SequenceLayout layout({.boundaries = {0, 200, 333}});
  std::vector<Tensor> first;
  const int before = tensor::num_threads();
  for (const int threads : {1, 2, 3}) {
    tensor::set_num_threads(threads);
    const Tensor x = testing::leaf(q), y = testing::leaf(k), z = testing::leaf(v);
    const Tensor out = attention(x, y, z, layout, {.scale = 0.3});
    run_backward(out, g);
    const std::vector<Tensor> results{out.detach(), x.grad(), y.grad(), z.grad()};
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(testing::bit_equal(results[i], first[i])) << threads << " threads, result " << i;
    }
  }
  tensor::set_num_threads(before);
}

TEST(Attention, TellsItsLargestLogit) {
  constexpr std::int64_t kTokens = 300, kCut = 170;  // several blocks of queries and of keys
  constexpr double kScale = 0.3;
  const Tensor q = normal({kTokens, 4, 8}, 1), k = normal({kTokens, 2, 8}, 2);
  const Tensor v = normal({kTokens, 2, 8}, 3);
  const SequenceLayout layout({.boundaries = {0, kCut, kTokens}});
  const Tensor scores_nqk =
      q.transpose(0, 1).matmul(k.repeat_interleave(2, 1).permute({1, 2, 0})).mul(kScale);
  for (const bool causal : {true, false}) {
    double expected = -1e300;
    Tensor of_heads = tensor::full({4}, -1e300, DType::Double);
    for (const auto& [begin, length] : {std::pair{std::int64_t{0}, kCut}, {kCut, kTokens - kCut}}) {
      Tensor inside = scores_nqk.narrow(1, begin, length).narrow(2, begin, length);
      if (causal)
        inside = inside.add(tensor::full({length, length}, -1e300, DType::Double).triu(1));
      expected = std::max(expected, inside.max().item<double>());
      of_heads = of_heads.maximum(inside.amax(IntList{1, 2}));
    }
    if (causal) {
      EXPECT_LT(expected, scores_nqk.max().item<double>()) << "hidden keys matter here";
    }
    AttentionOptions options{.scale = kScale, .causal = causal};
    const Tensor without = attention(q, k, v, layout, options);
    options.max_logit = tensor::scalar(-1e300, DType::Double);
    EXPECT_TRUE(testing::bit_equal(attention(q, k, v, layout, options), without));
    EXPECT_NEAR(options.max_logit.item<double>(), expected, 1e-12 * expected);
    // It is only ever raised.
    options.max_logit.fill_(expected + 1);
    (void)attention(q, k, v, layout, options);
    EXPECT_EQ(options.max_logit.item<double>(), expected + 1);
    // Of each head, by the kernel and by the library's products.
    for (const bool by_products : {false, true}) {
      options.max_logit = tensor::full({4}, -1e300, DType::Double);
      options.max_logit[2] = 1e6;
      if (by_products) {
        const AttentionPlan plan{.rows = layout.attention(), .options = options};
        attention_math_max_logit(plan, q, k, /*max_scores=*/4000);
      } else {
        EXPECT_TRUE(testing::bit_equal(attention(q, k, v, layout, options), without));
      }
      EXPECT_EQ(options.max_logit[2].item<double>(), 1e6);
      options.max_logit[2] = of_heads[2];
      EXPECT_LE(options.max_logit.sub(of_heads).abs().max().item<double>(), 1e-12 * expected);
    }
  }
  for (const Tensor& wrong : {tensor::scalar(0, DType::Float), tensor::zeros({3}, DType::Double)}) {
    EXPECT_THROW((void)attention(q, k, v, layout, {.max_logit = wrong}), Error);
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const SequenceLayout layout({.boundaries = {0, 4}}), shorter({.boundaries = {0, 3}});
  const Tensor q = normal({4, 3, 2}, 1), k = normal({4, 2, 2}, 2), one = normal({4, 1, 2}, 2);
  EXPECT_THROW((void)attention(q, k, k, layout, {}), Error);
  EXPECT_THROW((void)attention(q, one, one, shorter, {}), Error);
  EXPECT_THROW((void)attention(q, one, one, layout.with_keys(shorter), {}), Error);
  EXPECT_THROW((void)attention(q, one, one, layout, {.dropout = {.p = 1.0}}), Error);
  // A rank's share of it: what is here is not the whole sequence.
  const SequenceLayout twice({.boundaries = {0, 8}});
  const SequenceLayout share = cut_sequence(twice, {.size = 2, .rank = 1});
  EXPECT_THROW((void)attention(q, one, one, share, {}), Error);
  EXPECT_NO_THROW((void)attention(q, one, one, layout, {}));
}

// NaN that came in does not become the zero of a query without keys.
TEST(Attention, HandsNanOn) {
  const SequenceLayout layout({.boundaries = {0, 2}});
  Tensor q = normal({2, 1, 4}, 1);
  q[1][0][2] = std::nan("");
  const Tensor out = attention(q, normal({2, 1, 4}, 2), normal({2, 1, 4}, 3), layout, {});
  EXPECT_TRUE(std::isfinite(out[0].sum().item<double>()));
  EXPECT_TRUE(std::isnan(out[1].sum().item<double>()));
}

TEST(Attention, TakesStridedAndExpandedTensors) {
  constexpr std::int64_t kTokens = 21;
  const SequenceLayout layout({.boundaries = {0, 1, kTokens}});
  const AttentionOptions options{.scale = 0.4};
  // q, k, v as parts of one fused tensor; gradients that the library made by expand().
  const Tensor fused = testing::leaf(normal({kTokens, 6, 5}, 1));
  const auto run = [&](const Tensor& source, const Tensor& g, bool copy) {
    const auto part = [&](std::int64_t begin, std::int64_t heads) {
      const Tensor view = source.narrow(1, begin, heads);
      return copy ? view.contiguous() : view;
    };
    run_backward(attention(part(0, 4), part(4, 1), part(5, 1), layout, options), g);
  };
  for (const Shape& shape : {Shape{1, 4, 5}, Shape{kTokens, 1, 5}, Shape{1, 1, 1}}) {
    const Tensor g = normal(shape, 2).expand({kTokens, 4, 5});
    const Tensor a = testing::leaf(fused.detach()), b = testing::leaf(fused.detach());
    run(a, g, false);
    run(b, g.contiguous(), true);
    expect_close(a.grad(), b.grad(), 1e-14, "gradient of the fused tensor");
  }
  const Tensor one = normal({4, 5}, 3).unsqueeze(0), same = normal({1, 1, 5}, 4).expand({1, 4, 5});
  const SequenceLayout single({.boundaries = {0, 1}});
  expect_close(attention(one, one, same, single, options), same, 1e-14, "one token");
}

// Keys in two parts, the first queries see none of the first part.
struct Parts {
  static constexpr std::int64_t kQueries = 7, kFirst = 120, kSecond = 300;
  Tensor q = normal({kQueries, 4, 8}, 1), k = normal({kFirst + kSecond, 2, 8}, 2);
  Tensor v = normal({kFirst + kSecond, 2, 8}, 3), g = normal({kQueries, 4, 8}, 4);
  double scale = 0.5;

  [[nodiscard]] static AttentionSegmentsPtr rows(std::vector<AttentionSegment> segments) {
    return make_segments(std::move(segments), nullptr, nullptr);
  }
  [[nodiscard]] AttentionPlan plan(std::vector<AttentionSegment> segments, bool partial) const {
    return {.rows = rows(std::move(segments)),
            .options = {.scale = scale, .causal = false, .partial = partial}};
  }
  // Segments of all keys at once: the first two queries with the second part alone.
  [[nodiscard]] AttentionOutput whole() const {
    const AttentionOutput few =
        attention_forward(plan({{0, 2, 0, kSecond}}, false), q.narrow(0, 0, 2),
                          k.narrow(0, kFirst, kSecond), v.narrow(0, kFirst, kSecond));
    const AttentionOutput most = attention_forward(
        plan({{0, kQueries - 2, 0, kFirst + kSecond}}, false), q.narrow(0, 2, kQueries - 2), k, v);
    return {.out_tnd = tensor::cat({few.out_tnd, most.out_tnd}, 0),
            .lse_nt = tensor::cat({few.lse_nt, most.lse_nt}, 1),
            .library = {}};
  }
  [[nodiscard]] AttentionPlan first() const {
    return plan({{0, 2, 0, 0}, {2, kQueries - 2, 0, kFirst}}, true);
  }
  [[nodiscard]] AttentionPlan second() const { return plan({{0, kQueries, 0, kSecond}}, true); }
  [[nodiscard]] AttentionOutput of(const AttentionPlan& plan, std::int64_t begin,
                                   std::int64_t length) const {
    return attention_forward(plan, q, k.narrow(0, begin, length), v.narrow(0, begin, length));
  }
};

TEST(AttentionInParts, MergedEqualsTheWhole) {
  for (const double scale : {0.5, 400.0}) {
    Parts parts;
    parts.scale = scale;
    const AttentionOutput whole = parts.whole();
    AttentionOutput sum;
    const AttentionOutput first = parts.of(parts.first(), 0, Parts::kFirst);
    merge_attention(sum, first);
    const AttentionOutput second = parts.of(parts.second(), Parts::kFirst, Parts::kSecond);
    merge_attention(sum, second);
    expect_close(sum.out_tnd, whole.out_tnd, 1e-13, "output");
    expect_close(sum.lse_nt, whole.lse_nt, 1e-13, "log-sum-exp");
    // The formula without its shift would be noticed.
    const Tensor plain = first.lse_nt.exp().add(second.lse_nt.exp()).log();
    EXPECT_EQ(plain.isfinite().all().item<bool>(), scale < 1.0);
  }
}

TEST(AttentionInParts, GradientsAddUp) {
  Parts parts;
  AttentionOutput sum;
  merge_attention(sum, parts.of(parts.first(), 0, Parts::kFirst));
  merge_attention(sum, parts.of(parts.second(), Parts::kFirst, Parts::kSecond));
  const auto gradients = [&](const AttentionPlan& plan, std::int64_t begin, std::int64_t length) {
    return attention_backward(plan, parts.q, parts.k.narrow(0, begin, length),
                              parts.v.narrow(0, begin, length), sum, parts.g);
  };
  const AttentionGradients a = gradients(parts.first(), 0, Parts::kFirst);
  const AttentionGradients b = gradients(parts.second(), Parts::kFirst, Parts::kSecond);
  // The whole by the library's own derivative.
  const Tensor q = testing::leaf(parts.q), k = testing::leaf(parts.k), v = testing::leaf(parts.v);
  const auto heads = [](const Tensor& x) { return x.repeat_interleave(2, 1).transpose(0, 1); };
  Tensor scores = q.transpose(0, 1).bmm(heads(k).transpose(1, 2)).mul(parts.scale);
  Tensor hidden = tensor::zeros(scores.sizes(), DType::Bool);
  hidden.narrow(1, 0, 2).narrow(2, 0, Parts::kFirst).fill_(true);
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  run_backward(scores.softmax(-1).bmm(heads(v)).transpose(0, 1), parts.g);
  expect_close(a.dq_tnd.add(b.dq_tnd), q.grad(), 1e-12, "dq");
  expect_close(tensor::cat({a.dk_tgd, b.dk_tgd}, 0), k.grad(), 1e-12, "dk");
  expect_close(tensor::cat({a.dv_tgd, b.dv_tgd}, 0), v.grad(), 1e-12, "dv");
}

}  // namespace
}  // namespace pentatron::ops
