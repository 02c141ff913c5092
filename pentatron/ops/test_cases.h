// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/base/philox.h"
#include "pentatron/ops/activation.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/embedding.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/norm.h"
#include "pentatron/ops/rotary.h"
#include "pentatron/ops/sigmoid_gate.h"
#include "pentatron/ops/test_attention_cases.h"
#include "pentatron/ops/test_op_case.h"
#include "pentatron/tensor/text_lengths.h"

// Every differentiable op with a plain fp64 reference of library methods (differentiated by the
// library): one list for both devices, ops_test (CPU) and ops_gpu_test (GPUs).
namespace pentatron::ops::testing {

// --- plain references
// -------------------------------------------------------------------------------------------------

inline Tensor plain_gelu(const Tensor& x) {
  return x.mul(0.5).mul(x.pow(3).mul(0.044715).add(x).mul(std::sqrt(2.0 / M_PI)).tanh().add(1.0));
}

inline Tensor plain_gelu_erf(const Tensor& x) {
  return x.mul(x.mul(std::sqrt(0.5)).erf().add(1.0)).mul(0.5);
}

inline Tensor plain_layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  const Tensor centered = x.sub(x.mean(IntList{-1}, true));
  return centered.div(centered.pow(2).mean(IntList{-1}, true).add(eps).sqrt()).mul(w).add(b);
}

inline Tensor plain_rotary(const Tensor& x_tnd, const std::vector<std::int64_t>& positions,
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

inline Tensor plain_dropout_factors(std::int64_t rows, std::int64_t channels, double p,
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

inline OpCase linear_case(const std::string& name, std::int64_t rows, std::int64_t in,
                          std::int64_t out) {
  return {name,
          {{rows, in}},
          {{out, in}},
          [](const Tensors& x, auto& w) { return linear(x[0], w[0], nullptr, {}); },
          [](const Tensors& x, const Tensors& w) { return x[0].matmul(w[0].t()); }};
}

inline OpCase linear_bias_case(const std::string& name, std::int64_t rows, std::int64_t in,
                               std::int64_t out) {
  return {name,
          {{rows, in}},
          {{out, in}, {out}},
          [](const Tensors& x, auto& w) { return linear(x[0], w[0], &w[1], {}); },
          [](const Tensors& x, const Tensors& w) { return x[0].matmul(w[0].t()).add(w[1]); }};
}

inline OpCase layer_norm_case(const std::string& name, std::int64_t rows, std::int64_t h) {
  return {
      name,
      {{rows, h}},
      {{h}, {h}},
      [](const Tensors& x, auto& w) { return layer_norm(x[0], w[0], w[1], 1e-3, DType::Float); },
      [](const Tensors& x, const Tensors& w) { return plain_layer_norm(x[0], w[0], w[1], 1e-3); }};
}

inline OpCase l2_norm_case(const std::string& name, const Shape& shape) {
  return {.name = name,
          .inputs = {shape},
          .weights = {},
          .op = [](const Tensors& x, auto&) { return l2_norm(x[0], 1e-3, DType::Float); },
          .reference =
              [](const Tensors& x, const Tensors&) {
                return x[0].div(x[0].pow(2).mean({-1}, true).add(1e-3).sqrt());
              }};
}

inline OpCase rms_norm_case(const std::string& name, const Shape& shape) {
  return {name,
          {shape},
          {{shape.back()}},
          [](const Tensors& x, auto& w) { return rms_norm(x[0], w[0], 1e-3, DType::Float); },
          [](const Tensors& x, const Tensors& w) {
            return x[0].div(x[0].pow(2).mean(IntList{-1}, true).add(1e-3).sqrt()).mul(w[0]);
          }};
}

// Both outputs side by side, so that gradients come to the sum and to the norm.
inline OpCase add_rms_norm_case(const std::string& name, const Shape& shape) {
  return {name,
          {shape, shape},
          {{shape.back()}},
          [](const Tensors& x, auto& w) {
            const AddedNorm out = add_rms_norm(x[0], x[1], w[0], 1e-3, DType::Float);
            return tensor::cat({out.sum_th, out.norm_th}, -1);
          },
          [](const Tensors& x, const Tensors& w) {
            const Tensor sum = x[0].add(x[1]);
            const Tensor root = sum.pow(2).mean(IntList{-1}, true).add(1e-3).sqrt();
            return tensor::cat({sum, sum.div(root).mul(w[0])}, -1);
          }};
}
inline OpCase add_layer_norm_case(const std::string& name, std::int64_t rows, std::int64_t h) {
  return {name,
          {{rows, h}, {rows, h}},
          {{h}, {h}},
          [](const Tensors& x, auto& w) {
            const AddedNorm out = add_layer_norm(x[0], x[1], w[0], w[1], 1e-3, DType::Float);
            return tensor::cat({out.sum_th, out.norm_th}, -1);
          },
          [](const Tensors& x, const Tensors& w) {
            const Tensor sum = x[0].add(x[1]);
            return tensor::cat({sum, plain_layer_norm(sum, w[0], w[1], 1e-3)}, -1);
          }};
}

// Rows [begin, begin + table_rows) of the whole table, of which the first `rows` are no padding.
inline OpCase embedding_case(const std::string& name, const std::vector<std::int64_t>& tokens,
                             std::int64_t begin, std::int64_t rows, const Shape& table) {
  return {name,
          {},
          {table},
          [=](const Tensors&, auto& w) {
            return embedding(ids(tokens, w[0].value().device()), w[0], begin, rows);
          },
          [=](const Tensors&, const Tensors& w) {
            Tensors out;
            for (const std::int64_t id : tokens) {
              const bool here = id >= begin && id < begin + rows;
              out.push_back(here ? w[0][id - begin] : w[0][0].mul(0.0));
            }
            return tensor::stack(out, 0);
          }};
}

inline OpCase gelu_case(const std::string& name, std::int64_t rows, std::int64_t columns) {
  return {name,
          {{rows, columns}},
          {},
          [](const Tensors& x, auto&) { return gelu_tanh(x[0].mul(2.0)); },
          [](const Tensors& x, const Tensors&) { return plain_gelu(x[0].mul(2.0)); }};
}

inline OpCase swiglu_case(const std::string& name, std::int64_t rows, std::int64_t f) {
  return {name,
          {{rows, 2 * f}},
          {},
          [](const Tensors& x, auto&) { return swiglu(x[0]); },
          [f](const Tensors& x, const Tensors&) {
            const Tensor gate = x[0].narrow(1, 0, f);
            return gate.mul(gate.sigmoid()).mul(x[0].narrow(1, f, f));
          }};
}

inline OpCase activation_case(const std::string& name, Activation kind, const Shape& shape,
                              const std::function<Tensor(const Tensor&)>& plain) {
  return {name,
          {shape},
          {},
          [kind](const Tensors& x, auto&) { return activation(kind, x[0].mul(2.0)); },
          [plain](const Tensors& x, const Tensors&) { return plain(x[0].mul(2.0)); }};
}
// A linear map with a bias and its activation in one op.
inline OpCase linear_activation_case(const std::string& name, Activation kind, std::int64_t rows,
                                     std::int64_t in, std::int64_t out) {
  return {name,
          {{rows, in}},
          {{out, in}, {out}},
          [kind](const Tensors& x, auto& w) {
            return linear_activation(x[0], std::make_unique<Projection>(w[0], &w[1], Scope{}), kind,
                                     {});
          },
          [kind](const Tensors& x, const Tensors& w) {
            const Tensor y = x[0].matmul(w[0].t()).add(w[1]);
            if (kind == Activation::kGeluTanh) return plain_gelu(y);
            if (kind == Activation::kSquaredRelu) return y.clamp_min(0.0).square();
            return plain_gelu_erf(y);
          }};
}
inline OpCase gelu_erf_case(const std::string& name, const Shape& shape) {
  return activation_case(name, Activation::kGeluErf, shape, plain_gelu_erf);
}
inline OpCase squared_relu_case(const std::string& name, const Shape& shape) {
  return activation_case(name, Activation::kSquaredRelu, shape,
                         [](const Tensor& x) { return x.clamp_min(0.0).pow(2); });
}

inline OpCase gated_case(const std::string& name, const Gate& gate, std::int64_t rows,
                         std::int64_t f) {
  return {name,
          {{rows, 2 * f}},
          {},
          [gate](const Tensors& x, auto&) { return gated(gate, x[0].mul(2.0)); },
          [gate, f](const Tensors& x, const Tensors&) {
            Tensor g = x[0].mul(2.0).narrow(1, 0, f), up = x[0].mul(2.0).narrow(1, f, f);
            if (gate.clamp > 0.0) {
              g = g.clamp_max(gate.clamp);
              up = up.clamp(-gate.clamp, gate.clamp);
            }
            if (gate.kind == GateKind::kGeluTanh) return plain_gelu(g).mul(up.add(gate.offset));
            const double slope = gate.kind == GateKind::kQuickGelu ? 1.702 : 1.0;
            return g.mul(g.mul(slope).sigmoid()).mul(up.add(gate.offset));
          }};
}

// Texts of three and of four rows, of which the longer one has angles of another base.
inline OpCase rotary_by_length_case(const std::string& name) {
  constexpr double kShortBase = 100.0, kLongBase = 7.0;
  const SequenceLayout layout({.boundaries = {0, 3, 7}});
  return {name,
          {{7, 3, 10}},
          {},
          [=](const Tensors& x, auto&) {
            const Device device = device_of(x);
            const auto angles = [&](double base) {
              return make_rotary_table(5, 6, base, x[0].scalar_type(), device);
            };
            const RotaryTable a = angles(kShortBase), b = angles(kLongBase);
            const SequenceLayout there = layout.to(device);
            return rotary_by_length(
                x[0],
                {.cos = tensor::cat({a.cos, b.cos}, 0), .sin = tensor::cat({a.sin, b.sin}, 0)},
                text_lengths(there), /*short_length=*/3, there);
          },
          [=](const Tensors& x, const Tensors&) {
            return tensor::cat({plain_rotary(x[0].narrow(0, 0, 3), {0, 1, 2}, 6, kShortBase),
                                plain_rotary(x[0].narrow(0, 3, 4), {0, 1, 2, 3}, 6, kLongBase)},
                               0);
          }};
}

// Heads [first, first + count) of x are turned: a part of a fused tensor.
inline OpCase rotary_case(const std::string& name, const Shape& x_tnd, std::int64_t rotary_dim,
                          std::int64_t first, std::int64_t count, bool interleaved = false) {
  const std::vector<std::int64_t> all{0, 5, 1, 2, 16, 3, 3};
  const std::vector<std::int64_t> positions(all.begin(), all.begin() + x_tnd[0]);
  const SequenceLayout layout({.boundaries = {0, x_tnd[0]}, .positions = positions});
  return {name,
          {x_tnd},
          {},
          [=](const Tensors& x, auto&) {
            const Device device = device_of(x);
            return rotary(x[0].narrow(1, first, count),
                          make_rotary_table(17, rotary_dim, 100.0, x[0].scalar_type(), device,
                                            {.interleaved = interleaved}),
                          layout.to(device));
          },
          [=](const Tensors& x, const Tensors&) {
            const Tensor part = x[0].narrow(1, first, count);
            if (!interleaved) return plain_rotary(part, positions, rotary_dim, 100.0);
            // Neighbours brought to the halves, and back.
            std::vector<std::int64_t> order, back(static_cast<std::size_t>(part.size(2)));
            for (std::int64_t i = 0; i < rotary_dim; i += 2) order.push_back(i);
            for (std::int64_t i = 1; i < rotary_dim; i += 2) order.push_back(i);
            for (std::int64_t i = rotary_dim; i < part.size(2); ++i) order.push_back(i);
            for (std::size_t i = 0; i < order.size(); ++i) {
              back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
            }
            return plain_rotary(part.index_select(2, tensor::from_vector(order)), positions,
                                rotary_dim, 100.0)
                .index_select(2, tensor::from_vector(back));
          }};
}

inline OpCase dropout_case(const std::string& name, std::int64_t rows, std::int64_t channels,
                           std::int64_t begin) {
  return {name,
          {{rows, channels}},
          {},
          [=](const Tensors& x, auto&) {
            std::vector<std::int64_t> samples, index;
            for (std::int64_t r = 0; r < rows; ++r) {
              samples.push_back((std::int64_t{1} << 32) + 7 + r);
              index.push_back(2 * r);
            }
            const Device device = device_of(x);
            return dropout(x[0], 0.3, {kSiteKey}, ids(samples, device), ids(index, device), begin);
          },
          [=](const Tensors& x, const Tensors&) {
            return x[0].mul(plain_dropout_factors(rows, channels, 0.3, begin));
          }};
}

inline OpCase sigmoid_gate_case(const std::string& name, const Shape& shape) {
  return {name,
          {shape, shape},
          {},
          [](const Tensors& x, auto&) { return sigmoid_gate(x[0], x[1].mul(3.0)); },
          [](const Tensors& x, const Tensors&) { return x[0].div(x[1].mul(-3.0).exp().add(1.0)); }};
}

inline std::vector<OpCase> weight_cases() {
  return {linear_case("linear", 37, 19, 23),
          linear_bias_case("linear_bias", 1, 7, 5),
          layer_norm_case("layer_norm", 131, 29),
          rms_norm_case("rms_norm", {3, 5, 33}),
          add_layer_norm_case("add_layer_norm", 131, 29),
          add_rms_norm_case("add_rms_norm", {3, 5, 33}),
          l2_norm_case("l2_norm", {7, 4, 24}),
          embedding_case("embedding", {3, 9, 3, 0, 12, 4, 3}, 3, 8, {10, 5})};
}

inline std::vector<OpCase> plain_cases() {
  return {
      gelu_case("gelu", 13, 177),
      linear_activation_case("linear_gelu", Activation::kGeluTanh, 13, 9, 21),
      swiglu_case("swiglu", 9, 21),
      rotary_case("rotary", {7, 3, 10}, 6, 0, 3),
      rotary_case("rotary_of_a_part", {7, 5, 6}, 6, 1, 2),
      rotary_case("rotary_interleaved", {7, 5, 10}, 6, 1, 3, true),
      rotary_by_length_case("rotary_by_length"),
      gelu_erf_case("gelu_erf", {13, 177}),
      squared_relu_case("squared_relu", {13, 177}),
      gated_case("quick_geglu", {.kind = GateKind::kQuickGelu}, 9, 21),
      gated_case("quick_geglu_offset_clamp",
                 {.kind = GateKind::kQuickGelu, .offset = 1.0, .clamp = 0.7}, 9, 21),
      gated_case("swiglu_offset", {.offset = 0.5}, 9, 21),
      sigmoid_gate_case("sigmoid_gate", {7, 3, 11}),
      gated_case("geglu", {.kind = GateKind::kGeluTanh}, 9, 21),
      gated_case("geglu_offset", {.kind = GateKind::kGeluTanh, .offset = 0.5}, 9, 21),
      dropout_case("dropout", 6, 21, 13),
      attention_case("attention", {{0, 37}, 3, 3, 5, true, 0.0}),
      attention_case("attention_segments_gqa", {{0, 5, 6, 6, 41}, 6, 2, 8, true, 0.0}),
      attention_case("attention_multi_query", {{0, 9, 20}, 4, 1, 3, true, 0.0}),
      attention_case("attention_bidirectional", {{0, 11, 40}, 2, 2, 4, false, 0.0}),
      attention_case("attention_blocks", {{0, 300, 560}, 2, 1, 4, true, 0.0}),
      attention_case("alibi", {{0, 5, 300, 341}, 6, 2, 8, true, 0.0, {}, true}),
      attention_case("alibi_bidirectional", {{0, 11, 40}, 4, 4, 4, false, 0.0, {}, true}),
      attention_case("alibi_cross", {{0, 5, 12}, 4, 2, 8, true, 0.0, {0, 11, 31}, true}),
      attention_case("cross", {{0, 5, 20}, 4, 2, 8, false, 0.0, {0, 11, 13}}),
      attention_case("cross_blocks", {{0, 7, 270}, 2, 1, 4, false, 0.0, {0, 300, 580}}),
      attention_case("cross_causal", {{0, 5, 12}, 4, 2, 8, true, 0.0, {0, 11, 31}}),
      attention_case("cross_causal_blocks", {{0, 200, 220}, 2, 1, 8, true, 0.0, {0, 590, 700}}),
      // Fewer keys than queries: the first queries see none; a segment without keys, one without
      // queries.
      attention_case("cross_causal_few_keys", {{0, 9, 20}, 2, 1, 8, true, 0.0, {0, 3, 14}}),
      attention_case("cross_causal_few_keys_blocks", {{0, 290}, 2, 2, 8, true, 0.0, {0, 270}}),
      attention_case("cross_empty", {{0, 6, 10, 10, 17}, 2, 1, 8, false, 0.0, {0, 4, 4, 9, 12}}),
  };
}

// Sizes that wide loads like and sizes that they do not, one row, no rows, rows longer than a
// block's registers, many rows of one id.
inline std::vector<OpCase> shape_cases() {
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < 300; ++t) tokens.push_back(t % 3 == 0 ? 7 : (t * 31) % 20);
  return {
      linear_case("linear_whole", 64, 48, 32),
      linear_case("linear_no_rows", 0, 16, 24),
      linear_bias_case("linear_bias_whole", 130, 32, 40),
      linear_bias_case("linear_bias_no_rows", 0, 16, 24),
      linear_bias_case("linear_bias_many_rows", 700, 8, 64),
      linear_bias_case("linear_bias_one_column", 5, 3, 1),
      layer_norm_case("layer_norm_whole", 300, 64),
      layer_norm_case("layer_norm_one_row", 1, 1000),
      layer_norm_case("layer_norm_no_rows", 0, 16),
      layer_norm_case("layer_norm_registers_full", 3, 8192),
      layer_norm_case("layer_norm_long", 5, 9000),
      layer_norm_case("layer_norm_one_column", 9, 1),
      add_layer_norm_case("add_layer_norm_whole", 300, 64),
      add_layer_norm_case("add_layer_norm_one_row", 1, 1000),
      add_layer_norm_case("add_layer_norm_no_rows", 0, 16),
      add_layer_norm_case("add_layer_norm_registers_full", 3, 8192),
      add_layer_norm_case("add_layer_norm_long", 5, 9000),
      add_rms_norm_case("add_rms_norm_whole", {70, 4104}),
      add_rms_norm_case("add_rms_norm_long_odd", {2, 2, 8195}),
      add_rms_norm_case("add_rms_norm_one_column", {9, 1}),
      rms_norm_case("rms_norm_whole", {700, 4104}),
      rms_norm_case("rms_norm_long_odd", {2, 2, 8195}),
      rms_norm_case("rms_norm_no_rows", {0, 3, 8}),
      embedding_case("embedding_runs", tokens, 4, 14, {16, 48}),
      embedding_case("embedding_runs_odd", tokens, 0, 20, {20, 13}),
      gelu_case("gelu_whole", 64, 128),
      linear_activation_case("linear_gelu_whole", Activation::kGeluTanh, 130, 16, 64),
      linear_activation_case("linear_gelu_many_rows", Activation::kGeluTanh, 700, 8, 40),
      linear_activation_case("linear_gelu_no_rows", Activation::kGeluTanh, 0, 8, 16),
      linear_activation_case("linear_gelu_erf", Activation::kGeluErf, 65, 7, 33),
      linear_activation_case("linear_squared_relu", Activation::kSquaredRelu, 65, 8, 256),
      gelu_case("gelu_tail", 5, 1003),
      gelu_case("gelu_no_rows", 0, 8),
      swiglu_case("swiglu_whole", 65, 96),
      swiglu_case("swiglu_no_rows", 0, 8),
      gelu_erf_case("gelu_erf_whole", {64, 128}),
      squared_relu_case("squared_relu_tail", {5, 1003}),
      gated_case("quick_geglu_whole", {.kind = GateKind::kQuickGelu, .clamp = 0.9}, 65, 96),
      gated_case("geglu_whole", {.kind = GateKind::kGeluTanh}, 65, 96),
      gated_case("quick_geglu_no_rows", {.kind = GateKind::kQuickGelu}, 0, 8),
      rotary_case("rotary_whole", {7, 3, 64}, 64, 0, 3),
      rotary_case("rotary_partial", {7, 4, 48}, 32, 1, 3),
      rotary_case("rotary_no_rows", {0, 3, 8}, 8, 0, 3),
      dropout_case("dropout_whole", 33, 64, 16),
      dropout_case("dropout_wide", 3, 4096, 0),
      dropout_case("dropout_shifted", 9, 64, 3),
      dropout_case("dropout_one_channel", 5, 1, 15),
      dropout_case("dropout_no_rows", 0, 8, 0),
      attention_case("attention_wide_heads", {{0, 70, 131}, 4, 2, 64, true, 0.0}),
      attention_case("attention_widest_heads", {{0, 33, 34, 150}, 2, 1, 128, true, 0.0}),
      attention_case("attention_wide_bidirectional", {{0, 40, 129}, 2, 2, 32, false, 0.0}),
      attention_case("attention_no_rows", {{0, 0}, 2, 1, 8, true, 0.0}),
      attention_case("cross_no_keys", {{0, 6}, 2, 1, 8, false, 0.0, {0, 0}}),
  };
}

inline std::string case_name(const ::testing::TestParamInfo<OpCase>& info) {
  return info.param.name;
}

// Runs the op on `device` and compares with the fp64 reference: output, every gradient.
inline void compare(const OpCase& c, DType dtype, DType grad_dtype, double tolerance,
                    Device device = kCpu) {
  Tensors inputs, reference_inputs, reference_weights;
  std::vector<TestWeight> weights;
  std::uint64_t seed = 100;
  for (const Shape& shape : c.inputs) {
    const Tensor value = normal(shape, seed++).to(dtype);
    inputs.push_back(leaf(value.to(device)));
    reference_inputs.push_back(leaf(value.to(DType::Double)));
  }
  for (const Shape& shape : c.weights) {
    const Tensor value = normal(shape, seed++).to(dtype);
    weights.emplace_back(value.to(device), grad_dtype);
    reference_weights.push_back(leaf(value.to(DType::Double)));
  }
  const Tensor out = c.op(inputs, weights);
  const Tensor expected = c.reference(reference_inputs, reference_weights);
  EXPECT_EQ(out.scalar_type(), dtype);
  expect_close(out.detach(), expected.detach(), tolerance, c.name + " output");
  const Tensor g = normal(tensor::shape_of(expected), 7).to(dtype);
  run_backward(out, g.to(device));
  expected.backward(g.to(DType::Double));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    expect_close(inputs[i].grad(), reference_inputs[i].grad(), tolerance,
                 c.name + " gradient of input " + std::to_string(i));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(weights[i].writes(), 1);
    expect_close(weights[i].grad(), reference_weights[i].grad(), tolerance,
                 c.name + " gradient of weight " + std::to_string(i));
  }
}

}  // namespace pentatron::ops::testing
