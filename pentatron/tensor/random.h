// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "pentatron/tensor/tensor.h"

// Keyed randomness (design: no generator state anywhere). Philox4x32-10 itself stands in
// base/philox.h.
namespace pentatron {

// Key of a dropout site: mixes the run's seed with the site's global name
// ("decoder.layers.3.self_attention.dropout").
struct RngSite {
  std::uint64_t key = 0;
};
[[nodiscard]] RngSite make_site(std::uint64_t seed, std::string_view global_site_name);

namespace tensor {

// The 16-bit draw from which on an element is kept: round(p * 65536). p in [0, 1), else a config
// error.
[[nodiscard]] std::uint32_t dropout_threshold(double p);

// Keep mask (uint8 [rows, channels]) of hidden dropout: element (row, channel) is kept iff its
// 16-bit draw >= round(p * 65536). Draw: Philox(key = site.key, counter = {global channel / 8,
// token index, sample id low, sample id high}), the (global channel % 8)-th of its eight 16-bit
// words. channel_begin is the global number of channel 0. Ids and indices: int64 [rows],
// contiguous, on one device, where the mask is made; else kInternal. p as above.
[[nodiscard]] Tensor dropout_keep_mask(RngSite site, double p, const Tensor& sample_ids_t,
                                       const Tensor& token_index_t, std::int64_t channel_begin,
                                       std::int64_t num_channels);

// Fills `out` (any float dtype, shape = box sizes) with mean 0, the given std, normal values keyed
// by (seed, part name, global row-major element index in logical_shape), computed in fp64 and
// rounded once. offsets: box origin. A box that leaves the logical shape: kInternal.
void fill_normal_keyed(Tensor out, std::uint64_t seed, std::string_view part_name, double std,
                       const Shape& logical_shape, const Shape& offsets);

// The same with uniform values in [-bound, bound).
void fill_uniform_keyed(Tensor out, std::uint64_t seed, std::string_view part_name, double bound,
                        const Shape& logical_shape, const Shape& offsets);

// out := in, rounded to one of the two bf16 neighbours with a chance that makes the mean the value
// (to 16 bits); what a bf16 holds stays, NaN and infinities stay. Element i is keyed by (seed,
// step, bucket, first_element + i), so any cut of a bucket gives equal bits: its 16-bit draw is the
// (element % 8)-th of Philox(key = make_site(seed, "stochastic_rounding"), counter = {element / 8,
// bucket, step low, step high}) and is added to the bits before the lower half is dropped. Both
// contiguous, of equal sizes; bucket < 2^32, elements < 2^35: internal errors otherwise.
void stochastic_round_bf16_keyed(Tensor out_bf16, const Tensor& in_fp32, std::uint64_t seed,
                                 std::int64_t step, std::int64_t bucket,
                                 std::int64_t first_element);

}  // namespace tensor
}  // namespace pentatron
