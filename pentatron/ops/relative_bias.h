// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/tensor/tensor.h"
#include "pentatron/tensor/weight_ref.h"

// Learned biases of attention scores by the distance of query and key (C. Raffel et al.,
// "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", 2020).
namespace pentatron::ops {

// How distances share the biases of a table of `num_buckets` rows. Of a decoder, whose queries see
// no later key: with e = num_buckets / 2 the distances below e have a bucket each, and those from e
// to max_distance share the others on a logarithmic scale; all beyond share the last one. With
// `bidirectional`, half of the buckets are for keys before and at the query, half for those after.
struct RelativeForm {
  std::int64_t num_buckets = 32;
  std::int64_t max_distance = 128;  // tokens
  bool bidirectional = false;
};

// The bucket of each distance key - query from -max_distance to max_distance, as T5 and Megatron-LM
// compute it (in fp32). Buckets that leave no distance one of its own, or a max_distance within
// these: kConfig (--relative-attention-num-buckets, --relative-attention-max-distance).
[[nodiscard]] std::vector<std::int64_t> relative_buckets(const RelativeForm& form);

// Which distance has which bucket, as zeros and ones [2 max_distance + 1, num_buckets].
[[nodiscard]] Tensor relative_choice(const RelativeForm& form, DType dtype, Device device);

// AttentionOptions::bias_nd of a table [num_buckets, n], in the graph and in the computing dtype of
// the table and `statistics`, which is that of `choice_db`.
[[nodiscard]] Tensor relative_bias(WeightRef& table_bn, const Tensor& choice_db, DType statistics);

}  // namespace pentatron::ops
