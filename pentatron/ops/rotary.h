// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "pentatron/tensor/sequence_layout.h"
#include "pentatron/tensor/tensor.h"

namespace pentatron::ops {

// YaRN's long context (arXiv 2309.00071), as Megatron-LM and transformers compute it. With r(b) =
// rotary_dim ln(original_positions / (2 pi b)) / (2 ln base), the number of the pair that turns b
// times over the original positions, a frequency f_i becomes f_i where i <= r(beta_fast), f_i /
// factor where i >= r(beta_slow), and between them the linear mix of both; the range is rounded
// outwards to whole pairs, or not, and cut to [0, rotary_dim - 1]. cos and sin are multiplied by
// m(mscale) / m(mscale_all_dim) with m(s) = 0.1 s ln(factor) + 1 for a factor above 1, else 1.
struct YarnForm {
  double factor = 1.0;
  double original_positions = 4096.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 1.0;
  double mscale_all_dim = 0.0;
  bool round_range = true;
};

struct RotaryForm {
  // Pairs are neighbours (x[2i], x[2i + 1]) instead of (x[i], x[i + rotary_dim / 2]).
  bool interleaved = false;
  double interpolation = 1.0;  // positions are divided by it
  // Llama 3.1's long context, 0: none. Of a frequency with wavelength w = 2 pi / f: f / factor
  // where w > 8192, f where w < 2048, between them (1 - s) f / factor + s f with s = (8192 / w - 1)
  // / 3.
  double llama3_factor = 0.0;
  std::optional<YarnForm> yarn = {};
  // LongRoPE: the frequency of each pair is divided by its number, cos and sin are multiplied by
  // `magnitude`. Empty: none.
  std::vector<double> divisors = {};
  double magnitude = 1.0;
};

// Angles cos/sin, [max_position, rotary_dim / 2], computed in fp64 and stored in `dtype`: angle(p,
// i) = p * base^(-2i / rotary_dim), changed as `form` says. An odd rotary_dim, a base or factors of
// 0 and below, divisors for another
// number of pairs, with YaRN a base of 1 or a beta_fast that is not above beta_slow: kConfig.
struct RotaryTable {
  Tensor cos;
  Tensor sin;
  bool interleaved = false;
};
[[nodiscard]] RotaryTable make_rotary_table(std::int64_t max_position, std::int64_t rotary_dim,
                                            double base, DType dtype, Device device = kCpu,
                                            const RotaryForm& form = {});

// Rotates the first rotary_dim channels of each head: the halves against each other, as Hugging
// Face's Llama, or neighbours where the table is interleaved. x [rows, heads, head_dim] of the
// layout's rows and positions. A position outside the table: kData; shapes that do not fit:
// kInternal.
[[nodiscard]] Tensor rotary(const Tensor& x_tnd, const RotaryTable& table,
                            const SequenceLayout& layout);

// The same with two sets of angles, one below the other in the table: rows of texts of more than
// `short_length` tokens (tensor/text_lengths.h) are rotated by the lower one. What a text gives
// does not depend on those beside it.
[[nodiscard]] Tensor rotary_by_length(const Tensor& x_tnd, const RotaryTable& short_and_long,
                                      const Tensor& lengths_t, std::int64_t short_length,
                                      const SequenceLayout& layout);

// The same for rows with a position on each of several axes (time, height, width), positions_ta
// int64 [rows, axes]: the first sections[0] pairs of a head are rotated by the position on the
// first axis, the next ones by that on the second, and so on, all with the table's frequency of
// their own (multimodal rotary embedding, P. Wang et al., "Qwen2-VL", 2024). Sections that do not
// add up to the table's pairs: kInternal; on CPUs a position outside the table: kData.
[[nodiscard]] Tensor rotary_by_axes(const Tensor& x_tnd, const RotaryTable& table,
                                    const Tensor& positions_ta,
                                    const std::vector<std::int64_t>& sections);

}  // namespace pentatron::ops
