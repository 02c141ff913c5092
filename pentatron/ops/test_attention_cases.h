// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "pentatron/base/philox.h"
#include "pentatron/ops/attention.h"
#include "pentatron/ops/attention_sink.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/ops/relative_bias.h"
#include "pentatron/ops/test_op_case.h"

// Attention in all its forms with a plain fp64 reference, for test_cases.h.
namespace pentatron::ops::testing {

struct AttentionShape {
  std::vector<std::int64_t> boundaries;
  std::int64_t heads, kv_heads, d;
  bool causal;
  double p;
  std::vector<std::int64_t> k_boundaries = {};  // cross attention; empty: the same rows
  bool alibi = false;
  std::int64_t window = -1;
  double softcap = 0.0;
  bool sink = false;  // the case's weight
  // Learned biases by distance, the case's last weight; 0 buckets: none
  std::int64_t buckets = 0, max_distance = 0;
  bool both_ways = false;
  double alibi_scale = 1.0;
  bool alibi_in_bf16 = false;
  std::int64_t v_d = 0;  // of values; 0: d

  std::int64_t value_channels() const { return v_d > 0 ? v_d : d; }
};

// Sample 3 begins at the second segment, half-way through its tokens: indices are those inside the
// sample.
inline SequenceLayout sequence_of(const std::vector<std::int64_t>& boundaries) {
  SequenceRows rows{.boundaries = boundaries};
  for (std::int64_t t = 0; t < boundaries.back(); ++t) {
    const bool second = boundaries.size() > 2 && t >= boundaries[1];
    rows.sample_ids.push_back(second ? (std::int64_t{5} << 32) + 3 : 2);
    rows.token_index.push_back(second ? t - boundaries[1] + 13 : t + 3);
  }
  return SequenceLayout(std::move(rows));
}

inline SequenceLayout layout_of(const AttentionShape& s, Device device) {
  const SequenceLayout queries = sequence_of(s.boundaries);
  if (s.k_boundaries.empty()) return queries.to(device);
  return queries.with_keys(sequence_of(s.k_boundaries)).to(device);
}

// [n, t, s] factors of the dropout of probabilities, straight from Philox.
inline Tensor plain_attention_factors(const AttentionShape& s, const AttentionSegments& rows,
                                      std::int64_t head_begin) {
  Tensor factors = tensor::ones({s.heads, rows.num_q_rows, rows.num_k_rows}, DType::Double);
  auto* out = factors.data_ptr<double>();
  const auto threshold = static_cast<std::uint32_t>(std::lround(s.p * 65536.0));
  for (std::int64_t n = 0; n < s.heads; ++n) {
    for (std::int64_t i = 0; i < rows.num_q_rows; ++i) {
      for (std::int64_t j = 0; j < rows.num_k_rows; ++j) {
        const std::int64_t key = rows.k_rows->token_index[j], sample = rows.q_rows->sample_ids[i];
        const PhiloxWords words =
            philox4x32_10({{static_cast<std::uint32_t>(key / 8),
                            static_cast<std::uint32_t>(rows.q_rows->token_index[i]),
                            static_cast<std::uint32_t>(sample & 0xffffffff),
                            (static_cast<std::uint32_t>(sample >> 32) << 20) ^
                                static_cast<std::uint32_t>(head_begin + n)}},
                          {{static_cast<std::uint32_t>(kSiteKey & 0xffffffff),
                            static_cast<std::uint32_t>(kSiteKey >> 32)}});
        const std::uint32_t word = words.v[(key % 8) / 2];
        const std::uint32_t draw = key % 2 == 0 ? word & 0xffff : word >> 16;
        out[(n * rows.num_q_rows + i) * rows.num_k_rows + j] =
            draw >= threshold ? 1.0 / (1.0 - s.p) : 0.0;
      }
    }
  }
  return factors;
}

// The nearest number of eight significant bits.
inline double plain_bf16(double x) {
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8);
}

// Slope times place in the segment.
inline double plain_alibi_of(const AttentionShape& s, double slope, std::int64_t place) {
  const auto at = static_cast<double>(place);
  return s.alibi_in_bf16 ? plain_bf16(plain_bf16(slope) * plain_bf16(at)) : slope * at;
}

// What ALiBi takes off inside the segments, [n, t, s]; the last query stands at the last key.
inline Tensor plain_alibi(const AttentionShape& s) {
  const std::vector<std::int64_t>& qb = s.boundaries;
  const std::vector<std::int64_t>& kb = s.k_boundaries.empty() ? qb : s.k_boundaries;
  const std::vector<double> slopes = alibi_slopes(s.heads);
  Tensor less = tensor::zeros({s.heads, qb.back(), kb.back()}, DType::Double);
  auto* out = less.data_ptr<double>();
  for (const double slope : slopes) {
    for (std::size_t segment = 0; segment + 1 < qb.size(); ++segment) {
      for (std::int64_t i = qb[segment]; i < qb[segment + 1]; ++i) {
        const std::int64_t from_end = qb[segment + 1] - i;
        const std::int64_t place = kb[segment + 1] - kb[segment] - from_end;
        for (std::int64_t j = kb[segment]; j < kb[segment + 1]; ++j) {
          out[i * kb.back() + j] =
              s.alibi_scale *
              std::abs(plain_alibi_of(s, slope, place) - plain_alibi_of(s, slope, j - kb[segment]));
        }
      }
    }
    out += qb.back() * kb.back();
  }
  return less;
}

// The bucket of a key `distance` behind its query, after the paper's formula in fp64; the numbers
// of the cases hit no whole logarithm.
inline std::int64_t plain_bucket(const AttentionShape& s, std::int64_t distance) {
  std::int64_t buckets = s.buckets, first = 0;
  if (s.both_ways) {
    buckets /= 2;
    if (distance > 0) first = buckets;
  } else if (distance > 0) {
    return 0;
  }
  const std::int64_t far = std::abs(distance), exact = buckets / 2;
  if (far < exact) return first + far;
  const double share = std::log(static_cast<double>(far) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(s.max_distance) / static_cast<double>(exact));
  const auto more = static_cast<std::int64_t>(share * static_cast<double>(buckets - exact));
  return first + std::min(exact + more, buckets - 1);
}

// Of a table [buckets, n]: [n, t, s]; the last query stands at the last key.
inline Tensor plain_biases(const AttentionShape& s, const Tensor& table_bn) {
  const std::vector<std::int64_t>& qb = s.boundaries;
  const std::vector<std::int64_t>& kb = s.k_boundaries.empty() ? qb : s.k_boundaries;
  std::vector<std::int64_t> buckets(static_cast<std::size_t>(qb.back() * kb.back()), 0);
  for (std::size_t segment = 0; segment + 1 < qb.size(); ++segment) {
    for (std::int64_t i = qb[segment]; i < qb[segment + 1]; ++i) {
      for (std::int64_t j = kb[segment]; j < kb[segment + 1]; ++j) {
        buckets[static_cast<std::size_t>(i * kb.back() + j)] =
            plain_bucket(s, (qb[segment + 1] - 1 - i) - (kb[segment + 1] - 1 - j));
      }
    }
  }
  return table_bn.index_select(0, tensor::from_vector(buckets))
      .view({qb.back(), kb.back(), s.heads})
      .permute({2, 0, 1});
}

// Which keys a query does not see, [t, s]. The last query stands at the last key.
inline Tensor plain_hidden(const AttentionShape& s) {
  const std::vector<std::int64_t>& qb = s.boundaries;
  const std::vector<std::int64_t>& kb = s.k_boundaries.empty() ? qb : s.k_boundaries;
  Tensor blocked = tensor::ones({qb.back(), kb.back()}, DType::Double);
  for (std::size_t segment = 0; segment + 1 < qb.size(); ++segment) {
    for (std::int64_t i = qb[segment]; i < qb[segment + 1]; ++i) {
      const std::int64_t place = kb[segment + 1] - 1 - (qb[segment + 1] - 1 - i);
      for (std::int64_t j = kb[segment]; j < kb[segment + 1]; ++j) {
        const bool later = s.causal && j > place;
        const bool outside = s.window >= 0 && place - j > s.window;
        if (!later && !outside) blocked[i][j] = 0.0;
      }
    }
  }
  return blocked.to(DType::Bool);
}

// weights: the sink [n] and the table of biases [buckets, n], as far as there are some.
inline Tensor plain_attention(const Tensors& qkv, const Tensors& weights, const AttentionShape& s,
                              double scale) {
  const Tensor hidden = plain_hidden(s);
  const auto heads_first = [&](const Tensor& x) {
    return x.permute({1, 0, 2}).repeat_interleave(s.heads / x.size(1), 0);
  };
  const Tensor q = heads_first(qkv[0]), k = heads_first(qkv[1]), v = heads_first(qkv[2]);
  Tensor scores = q.matmul(k.transpose(1, 2)).mul(scale);
  if (s.softcap > 0.0) scores = scores.div(s.softcap).tanh().mul(s.softcap);
  if (s.alibi) scores = scores.sub(plain_alibi(s));
  if (s.buckets > 0) scores = scores.add(plain_biases(s, weights.back()));
  Tensor logits = scores.masked_fill(hidden, -1e300);
  if (s.sink) {
    const Tensor column = weights[0].view({s.heads, 1, 1}).expand({s.heads, logits.size(1), 1});
    logits = tensor::cat({logits, column}, 2);
  }
  // Of a row without a key all probabilities are 0.
  Tensor p = logits.softmax(-1).narrow(2, 0, scores.size(2)).masked_fill(hidden, 0.0);
  if (s.p > 0.0) p = p.mul(plain_attention_factors(s, *layout_of(s, kCpu).attention(), 4));
  return p.matmul(v).permute({1, 0, 2});
}

inline std::vector<Shape> attention_weights(const AttentionShape& s) {
  std::vector<Shape> weights;
  if (s.sink) weights.push_back({s.heads});
  if (s.buckets > 0) weights.push_back({s.buckets, s.heads});
  return weights;
}

inline Tensor case_biases(const AttentionShape& s, std::vector<TestWeight>& w, const Tensor& q) {
  if (s.buckets == 0) return {};
  const RelativeForm form{s.buckets, s.max_distance, s.both_ways};
  const DType dtype = compute_dtype(q.scalar_type(), DType::Float);
  return relative_bias(w.back(), relative_choice(form, dtype, q.device()), DType::Float);
}

inline OpCase attention_case(const std::string& name, const AttentionShape& s) {
  const double scale = 1.5 / std::sqrt(static_cast<double>(s.d));
  const std::int64_t t = s.boundaries.back();
  const std::int64_t keys = s.k_boundaries.empty() ? t : s.k_boundaries.back();
  return {.name = name,
          .inputs = {{t, s.heads, s.d},
                     {keys, s.kv_heads, s.d},
                     {keys, s.kv_heads, s.value_channels()}},
          .weights = attention_weights(s),
          .op =
              [=](const Tensors& x, std::vector<TestWeight>& w) {
                const Tensor slopes =
                    s.alibi ? tensor::from_vector(alibi_slopes(s.heads)).to(device_of(x))
                            : Tensor();
                return attention(x[0], x[1], x[2], layout_of(s, device_of(x)),
                                 {.scale = scale,
                                  .causal = s.causal,
                                  .dropout = {.p = s.p, .site = {kSiteKey}, .head_begin = 4},
                                  .alibi_n = slopes,
                                  .alibi_scale = s.alibi_scale,
                                  .alibi_in_bf16 = s.alibi_in_bf16,
                                  .bias_nd = case_biases(s, w, x[0]),
                                  .window = s.window,
                                  .softcap = s.softcap,
                                  .sink_n = s.sink ? sink_logits(w[0], DType::Float) : Tensor()});
              },
          .reference = [=](const Tensors& x,
                           const Tensors& w) { return plain_attention(x, w, s, scale); }};
}

// Shapes of the cases of forms: short and long rows, keys of another length, fewer keys.
struct FormShapes {
  AttentionShape few{
      .boundaries = {0, 5, 6, 6, 41}, .heads = 6, .kv_heads = 2, .d = 8, .causal = true, .p = 0.0};
  AttentionShape many{
      .boundaries = {0, 300, 860}, .heads = 2, .kv_heads = 1, .d = 8, .causal = true, .p = 0.0};
  AttentionShape cross{.boundaries = {0, 5, 12},
                       .heads = 4,
                       .kv_heads = 2,
                       .d = 8,
                       .causal = true,
                       .p = 0.0,
                       .k_boundaries = {0, 11, 31}};
  AttentionShape few_keys{.boundaries = {0, 9, 20},
                          .heads = 2,
                          .kv_heads = 1,
                          .d = 8,
                          .causal = true,
                          .p = 0.0,
                          .k_boundaries = {0, 3, 14}};
};

// Cases under the names "attention_...", each a shape and a change.
struct FormCases {
  FormShapes shapes;
  std::vector<OpCase> cases;

  template <typename Change>
  void add(const std::string& name, AttentionShape shape, Change change) {
    change(shape);
    cases.push_back(attention_case("attention_" + name, shape));
  }
};

inline void add_window_and_sink_cases(FormCases& to) {
  const FormShapes& shapes = to.shapes;
  for (const std::int64_t window : {1, 7, 1000}) {
    to.add("window_" + std::to_string(window), shapes.few, [=](auto& s) { s.window = window; });
  }
  // Of a token that sees itself alone no gradient reaches q and k: with a sink one does.
  to.add("window_0_sink", shapes.few, [](auto& s) {
    s.window = 0;
    s.sink = true;
  });
  to.add("blocks_window_0_sink", shapes.many, [](auto& s) {
    s.window = 0;
    s.sink = true;
  });
  for (const std::int64_t window : {7, 130, 257}) {
    to.add("blocks_window_" + std::to_string(window), shapes.many,
           [=](auto& s) { s.window = window; });
  }
  to.add("window_cross", shapes.cross, [](auto& s) { s.window = 3; });
  to.add("window_few_keys", shapes.few_keys, [](auto& s) { s.window = 2; });
  to.add("window_both_ways", shapes.few, [](auto& s) {
    s.window = 4;
    s.causal = false;
  });
  to.add("softcap", shapes.few, [](auto& s) { s.softcap = 1.5; });
  to.add("softcap_blocks", shapes.many, [](auto& s) { s.softcap = 20.0; });
  to.add("sink", shapes.few, [](auto& s) { s.sink = true; });
  to.add("sink_blocks", shapes.many, [](auto& s) { s.sink = true; });
  to.add("sink_cross", shapes.cross, [](auto& s) { s.sink = true; });
  to.add("sink_few_keys", shapes.few_keys, [](auto& s) { s.sink = true; });
}

inline void add_bias_cases(FormCases& to) {
  const FormShapes& shapes = to.shapes;
  const auto biases = [](std::int64_t buckets, std::int64_t furthest, bool both_ways = false) {
    return [=](auto& s) {
      s.buckets = buckets;
      s.max_distance = furthest;
      s.both_ways = both_ways;
      s.causal = !both_ways;
    };
  };
  to.add("biases", shapes.few, biases(8, 20));
  to.add("biases_blocks", shapes.many, biases(32, 120));
  to.add("biases_far", shapes.many, biases(12, 1000));
  to.add("biases_cross", shapes.cross, biases(6, 9));
  to.add("biases_few_keys", shapes.few_keys, biases(6, 9));
  to.add("biases_both_ways", shapes.few, biases(8, 11, true));
  to.add("biases_both_ways_blocks", shapes.many, biases(14, 90, true));
  to.add("biases_window_sink_softcap", shapes.many, [=](auto& s) {
    biases(10, 70)(s);
    s.window = 100;
    s.softcap = 3.0;
    s.sink = true;
  });
  to.add("window_sink_softcap_alibi", shapes.many, [](auto& s) {
    s.window = 100;
    s.softcap = 3.0;
    s.sink = s.alibi = true;
  });
}

inline void add_alibi_cases(FormCases& to) {
  const FormShapes& shapes = to.shapes;
  // The slopes of 16 heads have more than eight bits; so have places above 256, for any slope.
  const auto in_bf16 = [](auto& s) {
    if (s.boundaries.back() < 256) s.heads = 16;
    s.alibi = s.alibi_in_bf16 = true;
    s.alibi_scale = 0.3;
  };
  to.add("alibi_scale", shapes.few, [](auto& s) {
    s.alibi = true;
    s.alibi_scale = 0.3;
  });
  to.add("alibi_in_bf16", shapes.few, in_bf16);
  to.add("alibi_in_bf16_blocks", shapes.many, in_bf16);
  to.add("alibi_in_bf16_cross", shapes.cross, in_bf16);
  to.add("alibi_in_bf16_few_keys", shapes.few_keys, in_bf16);
  to.add("alibi_in_bf16_window_both_ways", shapes.few, [=](auto& s) {
    in_bf16(s);
    s.window = 9;
    s.causal = false;
  });
}

// Heads of values narrower and wider than those of queries and keys.
inline void add_value_cases(FormCases& to) {
  const FormShapes& shapes = to.shapes;
  const auto of = [](std::int64_t channels) { return [=](auto& s) { s.v_d = channels; }; };
  to.add("narrow_values", shapes.few, of(5));
  to.add("narrow_values_blocks", shapes.many, of(3));
  to.add("wide_values", shapes.few, of(16));
  to.add("wide_values_blocks", shapes.many, of(11));
  to.add("wide_values_cross", shapes.cross, of(24));
  to.add("narrow_values_few_keys", shapes.few_keys, of(1));
  to.add("narrow_values_window_sink_softcap_alibi", shapes.many, [](auto& s) {
    s.v_d = 4;
    s.window = 100;
    s.softcap = 3.0;
    s.sink = s.alibi = true;
  });
}

// Windows, capped scores and sinks, by themselves and together.
inline std::vector<OpCase> attention_form_cases() {
  FormCases cases;
  add_window_and_sink_cases(cases);
  add_bias_cases(cases);
  add_alibi_cases(cases);
  add_value_cases(cases);
  return std::move(cases.cases);
}

// Only a device with an attention kernel of ours has these.
inline std::vector<OpCase> attention_dropout_cases() {
  return {
      attention_case("attention_dropout", {{0, 9, 43}, 4, 2, 6, true, 0.25}),
      attention_case("attention_blocks_dropout", {{0, 290}, 1, 1, 4, true, 0.1}),
      attention_case("attention_blocks_bidirectional", {{0, 3, 293}, 1, 1, 4, false, 0.1}),
      attention_case("cross_dropout", {{0, 9, 43}, 4, 2, 6, false, 0.25, {0, 21, 30}}),
      attention_case("attention_window_sink_softcap_dropout",
                     {{0, 9, 343}, 4, 2, 6, true, 0.25, {}, true, 40, 2.0, true}),
      attention_case("attention_biases_dropout",
                     {{0, 9, 343}, 4, 2, 6, true, 0.25, {}, false, -1, 0.0, false, 10, 70}),
  };
}

}  // namespace pentatron::ops::testing
