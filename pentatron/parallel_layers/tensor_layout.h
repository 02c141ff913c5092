// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/nn/shard_spec.h"
#include "pentatron/parallel_layers/cut.h"

// How weights are laid out on a rank, as pure data: no group, no allocation.
namespace pentatron::parallel_layers {

// One rank's place and what it does to rows between the leaves.
struct TensorLayout {
  comm::Place place;
  bool sequence_parallel = false;
};
// One rank holds every row: sequence parallelism changes nothing there.
[[nodiscard]] TensorLayout make_tensor_layout(comm::Place place, bool sequence_parallel);
// Of a world that is cut over "tp" alone.
[[nodiscard]] TensorLayout make_tensor_layout(std::int64_t size, std::int64_t rank,
                                              bool sequence_parallel);

// A part before it is laid out on a rank. A vector has columns == 0.
struct PartRule {
  std::string name;       // global
  std::int64_t rows = 0;  // logical
  std::int64_t columns = 0;
  Cut cut = {};
  bool cut_columns = false;  // the cut goes through the columns (inputs) instead of the rows
  nn::InitSpec init = {};
  // Rows with padding: the cut is through these, and what lies beyond `rows` belongs to no box. 0:
  // no padding.
  std::int64_t padded_rows = 0;
  // Not cut itself, but acts on what is: every rank's gradient is partial.
  bool of_cut_rows = false;
  std::string grid = "dense";  // or "expert", whose weights are cut over etp instead of tp
};

// The rank's spec of a parameter made of the given parts, one below the other. Weight decay is on
// for matrices only. Under sequence parallelism parts that are not cut act on this rank's token
// rows, so their gradients are partial over tp (experts see all rows routed to them), as are those
// of PartRule::of_cut_rows without it; copies of fewer units see partial gradients over their
// copies. Rows or columns that their units do not divide: kConfig with both values; the errors of
// share_of().
[[nodiscard]] nn::ShardSpec lay_out(const std::vector<PartRule>& parts, const TensorLayout& layout);

}  // namespace pentatron::parallel_layers
