// SPDX-License-Identifier: Apache-2.0
// Every differentiable op against a plain fp64 reference of library methods (differentiated by the
// library), in fp64, fp32 and bf16, and against finite differences.
#include <functional>
#include <ostream>

#include "pentatron/base/philox.h"
#include "pentatron/ops/activation.h"
#include "pentatron/ops/attention.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/embedding.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/norm.h"
#include "pentatron/ops/rotary.h"
#include "pentatron/ops/testing.h"

namespace pentatron::ops {
namespace {

using testing::normal;
using testing::TestWeight;
using Tensors = std::vector<Tensor>;

struct OpCase {
  std::string name;
  std::vector<Shape> inputs;
  std::vector<Shape> weights;
  std::function<Tensor(const Tensors&, std::vector<TestWeight>&)> op;
  std::function<Tensor(const Tensors&, const Tensors&)> reference;
};
std::ostream& operator<<(std::ostream& out, const OpCase& c) { return out << c.name; }

Tensor ids(const std::vector<std::int64_t>& values) { return tensor::from_vector(values); }

// --- plain references
// -------------------------------------------------------------------------------------------------

Tensor plain_gelu(const Tensor& x) {
  return x.mul(0.5).mul(x.pow(3).mul(0.044715).add(x).mul(std::sqrt(2.0 / M_PI)).tanh().add(1.0));
}

Tensor plain_layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  const Tensor centered = x.sub(x.mean(IntList{-1}, true));
  return centered.div(centered.pow(2).mean(IntList{-1}, true).add(eps).sqrt()).mul(w).add(b);
}

Tensor plain_rotary(const Tensor& x_tnd, const std::vector<std::int64_t>& positions,
                    std::int64_t rotary_dim, double base) {
  const std::int64_t half = rotary_dim / 2;
  Tensor angle =
      tensor::zeros({static_cast<std::int64_t>(positions.size()), 1, half}, DType::Double);
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      angle[static_cast<std::int64_t>(t)][0][i] =
          static_cast<double>(positions[t]) *
          std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    }
  }
  const Tensor a = x_tnd.narrow(2, 0, half), b = x_tnd.narrow(2, half, half);
  const Tensor c = angle.cos(), s = angle.sin();
  return tensor::cat({a.mul(c).sub(b.mul(s)), b.mul(c).add(a.mul(s)),
                      x_tnd.narrow(2, rotary_dim, x_tnd.size(2) - rotary_dim)},
                     2);
}

struct AttentionShape {
  std::vector<std::int64_t> cu_seqlens;
  std::int64_t heads, kv_heads, d;
  bool causal;
  double p;
};

BatchMeta meta_of(const AttentionShape& s) {
  BatchMeta meta;
  meta.num_tokens = s.cu_seqlens.back();
  meta.cu_seqlens = s.cu_seqlens;
  // Sample 3 begins at the second segment, half-way through its tokens: indices are those inside
  // the sample.
  for (std::int64_t t = 0; t < meta.num_tokens; ++t) {
    const bool second = s.cu_seqlens.size() > 2 && t >= s.cu_seqlens[1];
    meta.host_sample_ids.push_back(second ? (std::int64_t{5} << 32) + 3 : 2);
    meta.host_token_index.push_back(second ? t - s.cu_seqlens[1] + 13 : t + 3);
  }
  return meta;
}

constexpr std::uint64_t kSiteKey = 0x123456789abcdef0;

// [n, t, t] factors of the dropout of probabilities, straight from Philox.
Tensor plain_attention_factors(const AttentionShape& s, const BatchMeta& meta,
                               std::int64_t head_begin) {
  Tensor factors = tensor::ones({s.heads, meta.num_tokens, meta.num_tokens}, DType::Double);
  auto* out = factors.data_ptr<double>();
  const auto threshold = static_cast<std::uint32_t>(std::lround(s.p * 65536.0));
  for (std::int64_t n = 0; n < s.heads; ++n) {
    for (std::int64_t i = 0; i < meta.num_tokens; ++i) {
      for (std::int64_t j = 0; j < meta.num_tokens; ++j) {
        const std::int64_t key = meta.host_token_index[j], sample = meta.host_sample_ids[i];
        const PhiloxWords words =
            philox4x32_10({{static_cast<std::uint32_t>(key / 8),
                            static_cast<std::uint32_t>(meta.host_token_index[i]),
                            static_cast<std::uint32_t>(sample & 0xffffffff),
                            (static_cast<std::uint32_t>(sample >> 32) << 20) ^
                                static_cast<std::uint32_t>(head_begin + n)}},
                          {{static_cast<std::uint32_t>(kSiteKey & 0xffffffff),
                            static_cast<std::uint32_t>(kSiteKey >> 32)}});
        const std::uint32_t word = words.v[(key % 8) / 2];
        const std::uint32_t draw = key % 2 == 0 ? word & 0xffff : word >> 16;
        out[(n * meta.num_tokens + i) * meta.num_tokens + j] =
            draw >= threshold ? 1.0 / (1.0 - s.p) : 0.0;
      }
    }
  }
  return factors;
}

Tensor plain_attention(const Tensors& qkv, const AttentionShape& s, const BatchMeta& meta,
                       double scale) {
  const std::int64_t t = meta.num_tokens;
  Tensor blocked = tensor::ones({t, t}, DType::Double);
  for (std::size_t segment = 0; segment + 1 < s.cu_seqlens.size(); ++segment) {
    for (std::int64_t i = s.cu_seqlens[segment]; i < s.cu_seqlens[segment + 1]; ++i) {
      const std::int64_t end = s.causal ? i + 1 : s.cu_seqlens[segment + 1];
      blocked[i].narrow(0, s.cu_seqlens[segment], end - s.cu_seqlens[segment]).zero_();
    }
  }
  const auto heads_first = [&](const Tensor& x) {
    return x.permute({1, 0, 2}).repeat_interleave(s.heads / x.size(1), 0);
  };
  const Tensor q = heads_first(qkv[0]), k = heads_first(qkv[1]), v = heads_first(qkv[2]);
  const Tensor scores = q.matmul(k.transpose(1, 2)).mul(scale);
  Tensor p = scores.masked_fill(blocked.to(DType::Bool), -1e300).softmax(-1);
  if (s.p > 0.0) p = p.mul(plain_attention_factors(s, meta, 4));
  return p.matmul(v).permute({1, 0, 2});
}

OpCase attention_case(const std::string& name, const AttentionShape& s) {
  const double scale = 1.5 / std::sqrt(static_cast<double>(s.d));
  const std::int64_t t = s.cu_seqlens.back();
  return {.name = name,
          .inputs = {{t, s.heads, s.d}, {t, s.kv_heads, s.d}, {t, s.kv_heads, s.d}},
          .weights = {},
          .op =
              [=](const Tensors& x, std::vector<TestWeight>&) {
                return attention(x[0], x[1], x[2], meta_of(s),
                                 {.scale = scale,
                                  .causal = s.causal,
                                  .dropout = {.p = s.p, .site = {kSiteKey}, .head_begin = 4}});
              },
          .reference = [=](const Tensors& x,
                           const Tensors&) { return plain_attention(x, s, meta_of(s), scale); }};
}

Tensor plain_dropout_factors(std::int64_t rows, std::int64_t channels, double p,
                             std::int64_t begin) {
  Tensor factors = tensor::zeros({rows, channels}, DType::Double);
  const auto threshold = static_cast<std::uint32_t>(std::lround(p * 65536.0));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t channel = begin + c;
      const PhiloxWords words =
          philox4x32_10({{static_cast<std::uint32_t>(channel / 8),
                          static_cast<std::uint32_t>(2 * r), static_cast<std::uint32_t>(7 + r), 1}},
                        {{static_cast<std::uint32_t>(kSiteKey & 0xffffffff),
                          static_cast<std::uint32_t>(kSiteKey >> 32)}});
      const std::uint32_t word = words.v[(channel % 8) / 2];
      const std::uint32_t draw = channel % 2 == 0 ? word & 0xffff : word >> 16;
      if (draw >= threshold) factors[r][c] = 1.0 / (1.0 - p);
    }
  }
  return factors;
}

// --- the cases
// --------------------------------------------------------------------------------------------------------

std::vector<OpCase> weight_cases() {
  const std::vector<std::int64_t> tokens{3, 9, 3, 0, 12, 4, 3};
  return {
      {"linear",
       {{37, 19}},
       {{23, 19}},
       [](const Tensors& x, auto& w) { return linear(x[0], w[0], nullptr, {}); },
       [](const Tensors& x, const Tensors& w) { return x[0].matmul(w[0].t()); }},
      {"linear_bias",
       {{1, 7}},
       {{5, 7}, {5}},
       [](const Tensors& x, auto& w) { return linear(x[0], w[0], &w[1], {}); },
       [](const Tensors& x, const Tensors& w) { return x[0].matmul(w[0].t()).add(w[1]); }},
      {"add_bias",
       {{11, 3}},
       {{3}},
       [](const Tensors& x, auto& w) { return add_bias(x[0], w[0]); },
       [](const Tensors& x, const Tensors& w) { return x[0].add(w[0]); }},
      {"layer_norm",
       {{131, 29}},
       {{29}, {29}},
       [](const Tensors& x, auto& w) { return layer_norm(x[0], w[0], w[1], 1e-3, DType::Float); },
       [](const Tensors& x, const Tensors& w) { return plain_layer_norm(x[0], w[0], w[1], 1e-3); }},
      {"rms_norm",
       {{3, 5, 33}},
       {{33}},
       [](const Tensors& x, auto& w) { return rms_norm(x[0], w[0], 1e-3, DType::Float); },
       [](const Tensors& x, const Tensors& w) {
         return x[0].div(x[0].pow(2).mean(IntList{-1}, true).add(1e-3).sqrt()).mul(w[0]);
       }},
      {"embedding",
       {},
       {{10, 5}},  // rows 3 .. 10 of the whole table; 8 of 10 rows are no padding
       [=](const Tensors&, auto& w) { return embedding(ids(tokens), w[0], 3, 8); },
       [=](const Tensors&, const Tensors& w) {
         Tensors rows;
         for (const std::int64_t id : tokens) {
           const bool here = id >= 3 && id < 11;
           rows.push_back(here ? w[0][id - 3] : w[0][0].mul(0.0));
         }
         return tensor::stack(rows, 0);
       }},
  };
}

std::vector<OpCase> plain_cases() {
  const std::vector<std::int64_t> positions{0, 5, 1, 2, 16, 3, 3};
  const auto rotated = [=](const Tensor& x) {
    return rotary(x, make_rotary_table(17, 6, 100.0, x.scalar_type()), ids(positions));
  };
  return {
      {"gelu",
       {{13, 177}},
       {},
       [](const Tensors& x, auto&) { return gelu_tanh(x[0].mul(2.0)); },
       [](const Tensors& x, const Tensors&) { return plain_gelu(x[0].mul(2.0)); }},
      {"swiglu",
       {{9, 42}},
       {},
       [](const Tensors& x, auto&) { return swiglu(x[0]); },
       [](const Tensors& x, const Tensors&) {
         const Tensor gate = x[0].narrow(1, 0, 21);
         return gate.mul(gate.sigmoid()).mul(x[0].narrow(1, 21, 21));
       }},
      {"rotary",
       {{7, 3, 10}},
       {},
       [=](const Tensors& x, auto&) { return rotated(x[0]); },
       [=](const Tensors& x, const Tensors&) { return plain_rotary(x[0], positions, 6, 100.0); }},
      {"rotary_of_a_part",
       {{7, 5, 6}},
       {},
       [=](const Tensors& x, auto&) { return rotated(x[0].narrow(1, 1, 2)); },
       [=](const Tensors& x, const Tensors&) {
         return plain_rotary(x[0].narrow(1, 1, 2), positions, 6, 100.0);
       }},
      {"dropout",
       {{6, 21}},
       {},
       [](const Tensors& x, auto&) {
         std::vector<std::int64_t> samples, index;
         for (std::int64_t r = 0; r < 6; ++r) {
           samples.push_back((std::int64_t{1} << 32) + 7 + r);
           index.push_back(2 * r);
         }
         return dropout(x[0], 0.3, {kSiteKey}, ids(samples), ids(index), 13);
       },
       [](const Tensors& x, const Tensors&) {
         return x[0].mul(plain_dropout_factors(6, 21, 0.3, 13));
       }},
      attention_case("attention", {{0, 37}, 3, 3, 5, true, 0.0}),
      attention_case("attention_segments_gqa", {{0, 5, 6, 6, 41}, 6, 2, 8, true, 0.0}),
      attention_case("attention_multi_query", {{0, 9, 20}, 4, 1, 3, true, 0.0}),
      attention_case("attention_bidirectional", {{0, 11, 40}, 2, 2, 4, false, 0.0}),
      attention_case("attention_dropout", {{0, 9, 43}, 4, 2, 6, true, 0.25}),
      attention_case("attention_blocks", {{0, 300, 560}, 2, 1, 4, true, 0.0}),
      attention_case("attention_blocks_dropout", {{0, 290}, 1, 1, 4, true, 0.1}),
      attention_case("attention_blocks_bidirectional", {{0, 3, 293}, 1, 1, 4, false, 0.1}),
  };
}

class EveryOp : public ::testing::TestWithParam<OpCase> {};

void compare(const OpCase& c, DType dtype, DType grad_dtype, double tolerance) {
  Tensors inputs, reference_inputs, reference_weights;
  std::vector<TestWeight> weights;
  std::uint64_t seed = 100;
  for (const Shape& shape : c.inputs) {
    const Tensor value = normal(shape, seed++).to(dtype);
    inputs.push_back(testing::leaf(value));
    reference_inputs.push_back(testing::leaf(value.to(DType::Double)));
  }
  for (const Shape& shape : c.weights) {
    const Tensor value = normal(shape, seed++).to(dtype);
    weights.emplace_back(value, grad_dtype);
    reference_weights.push_back(testing::leaf(value.to(DType::Double)));
  }
  const Tensor out = c.op(inputs, weights);
  const Tensor expected = c.reference(reference_inputs, reference_weights);
  EXPECT_EQ(out.scalar_type(), dtype);
  testing::expect_close(out.detach(), expected.detach(), tolerance, c.name + " output");
  const Tensor g = normal(tensor::shape_of(expected), 7).to(dtype);
  run_backward(out, g);
  expected.backward(g.to(DType::Double));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    testing::expect_close(inputs[i].grad(), reference_inputs[i].grad(), tolerance,
                          c.name + " gradient of input " + std::to_string(i));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(weights[i].writes(), 1);
    testing::expect_close(weights[i].grad(), reference_weights[i].grad(), tolerance,
                          c.name + " gradient of weight " + std::to_string(i));
  }
}

TEST_P(EveryOp, EqualsReferenceInFp64) { compare(GetParam(), DType::Double, DType::Double, 1e-12); }
TEST_P(EveryOp, EqualsReferenceInFp32) { compare(GetParam(), DType::Float, DType::Float, 3e-6); }
// bf16 has 8 bits: outputs round at 2^-9, and backward reads rounded outputs.
TEST_P(EveryOp, EqualsReferenceInBf16) { compare(GetParam(), DType::BFloat16, DType::Float, 0.02); }
TEST_P(EveryOp, WritesBf16Slots) { compare(GetParam(), DType::BFloat16, DType::BFloat16, 0.02); }

TEST_P(EveryOp, EqualsFiniteDifferences) {
  const OpCase& c = GetParam();
  Tensors values;
  std::uint64_t seed = 300;
  for (const Shape& shape : c.inputs) values.push_back(normal(shape, seed++));
  for (const Shape& shape : c.weights) values.push_back(normal(shape, seed++));
  const std::size_t num_inputs = c.inputs.size();
  const auto run = [&](bool with_grad, Tensors& grads) {
    Tensors inputs;
    std::vector<TestWeight> weights;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i < num_inputs) {
        inputs.push_back(with_grad ? testing::leaf(values[i]) : values[i]);
      } else {
        weights.emplace_back(values[i]);
        weights.back().set_trainable(with_grad);
      }
    }
    const Tensor out = c.op(inputs, weights);
    const Tensor g = normal(tensor::shape_of(out), 8);
    if (with_grad) {
      run_backward(out, g);
      for (const Tensor& input : inputs) grads.push_back(input.grad());
      for (const TestWeight& weight : weights) grads.push_back(weight.grad());
    }
    return out.detach().mul(g).sum().item<double>();
  };
  Tensors grads, unused;
  (void)run(true, grads);
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto* data = values[i].data_ptr<double>();
    const std::int64_t stride = std::max<std::int64_t>(1, values[i].numel() / 7);
    const double largest = grads[i].abs().max().item<double>();
    for (std::int64_t e = 0; e < values[i].numel(); e += stride) {
      const double kept = data[e];
      data[e] = kept + kStep;
      const double above = run(false, unused);
      data[e] = kept - kStep;
      const double below = run(false, unused);
      data[e] = kept;
      EXPECT_NEAR(grads[i].contiguous().data_ptr<double>()[e], (above - below) / (2.0 * kStep),
                  1e-6 * largest)
          << c.name << ", argument " << i << ", element " << e;
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<OpCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Weights, EveryOp, ::testing::ValuesIn(weight_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Plain, EveryOp, ::testing::ValuesIn(plain_cases()), case_name);

}  // namespace
}  // namespace pentatron::ops
