// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/nn/shard_spec.h"

// How weights are cut over the tensor-parallel axis, as pure data: no group, no allocation.
namespace pentatron::parallel_layers {

// One rank's place on the tensor-parallel axis. With fewer kv heads than ranks the axis is
// factored: tp = tp_kv (slow) x tp_rep (fast); rank t has kv place t / rep_size and is copy t %
// rep_size of it.
struct TensorLayout {
  std::int64_t size = 1;
  std::int64_t rank = 0;
  std::int64_t kv_size = 1;  // min(size, kv heads)
  std::int64_t rep_size = 1;
  bool sequence_parallel = false;

  [[nodiscard]] std::int64_t kv_rank() const { return rank / rep_size; }
  [[nodiscard]] std::int64_t rep_rank() const { return rank % rep_size; }
};
// Config error unless the kv heads are a multiple or a divisor of size.
[[nodiscard]] TensorLayout make_tensor_layout(std::int64_t size, std::int64_t rank,
                                              std::int64_t num_kv_heads, bool sequence_parallel);

// What a leaf splits of a part.
enum class Cut {
  kWhole,     // every rank holds all (norms, biases after a reduction, positions)
  kRows,      // output rows over tp
  kKvRows,    // output rows over tp_kv, copies over tp_rep (k and v)
  kColumns,   // input columns over tp
  kVocabRows  // rows over tp after padding to padded_rows
};

// A part before it is laid out on a rank. A vector has columns == 0.
struct PartRule {
  std::string name;       // global
  std::int64_t rows = 0;  // logical
  std::int64_t columns = 0;
  Cut cut = Cut::kWhole;
  nn::InitSpec init;
  std::int64_t padded_rows = 0;  // kVocabRows only
};

// The rank's spec of a parameter made of the given parts, one below the other. Weight decay is on
// for matrices only. Under sequence parallelism whole parts act on this rank's token rows, so their
// gradients are partial over tp. Sizes that do not divide: config error with both values.
[[nodiscard]] nn::ShardSpec lay_out(const std::vector<PartRule>& parts, const TensorLayout& layout);

}  // namespace pentatron::parallel_layers
