// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/tensor_layout.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/fault.h"

namespace pentatron::parallel_layers {
namespace {

std::int64_t divided(std::int64_t value, std::int64_t by, const std::string& name) {
  PENTATRON_CHECK(
      value % by == 0, kConfig,
      "{}: its size {} does not divide evenly over {} ranks; change the model's size or "
      "--tensor-model-parallel-size",
      name, value, by);
  return value / by;
}

// Rows [begin, begin + size) of the part, all columns.
void take_rows(nn::ShardPart& part, std::int64_t begin, std::int64_t size) {
  part.box.offset[0] = begin;
  part.box.size[0] = size;
  part.local_rows = size;
}

nn::ShardPart lay_out_part(const PartRule& rule, const TensorLayout& layout) {
  nn::ShardPart part;
  part.name = rule.name;
  part.logical_shape = {rule.rows};
  if (rule.columns > 0) part.logical_shape.push_back(rule.columns);
  part.box.offset = Shape(part.logical_shape.size(), 0);
  part.box.size = part.logical_shape;
  part.local_rows = rule.rows;
  part.init = rule.init;
  part.decay = rule.columns > 0;
  switch (rule.cut) {
    case Cut::kWhole:
      part.replicate_axes = {"tp"};
      part.replica = layout.rank;
      if (layout.sequence_parallel && !planted_fault("sp_gradient_not_partial")) {
        part.partial_grad_axes = {"tp"};
      }
      break;
    case Cut::kRows: {
      const std::int64_t rows = divided(rule.rows, layout.size, rule.name);
      take_rows(part, layout.rank * rows, rows);
      part.split_axes = {"tp"};
      break;
    }
    case Cut::kKvRows: {
      const std::int64_t rows = divided(rule.rows, layout.kv_size, rule.name);
      const bool wrong = planted_fault("wrong_kv_replica");
      take_rows(part, (wrong ? layout.rank % layout.kv_size : layout.kv_rank()) * rows, rows);
      if (layout.rep_size == 1) {
        part.split_axes = {"tp"};
        break;
      }
      part.split_axes = {"tp_kv"};
      part.replicate_axes = {"tp_rep"};
      part.replica = layout.rep_rank();
      // Each copy serves other query heads and sees only their share of the gradient.
      part.partial_grad_axes = {"tp_rep"};
      break;
    }
    case Cut::kColumns: {
      const std::int64_t columns = divided(rule.columns, layout.size, rule.name);
      part.box.offset[1] = layout.rank * columns;
      part.box.size[1] = columns;
      part.split_axes = {"tp"};
      break;
    }
    case Cut::kVocabRows: {
      PENTATRON_CHECK(rule.padded_rows >= rule.rows, kConfig,
                      "{}: the padded vocabulary {} is smaller than the vocabulary {}; change "
                      "--padded-vocab-size",
                      rule.name, rule.padded_rows, rule.rows);
      const std::int64_t rows = divided(rule.padded_rows, layout.size, rule.name);
      const std::int64_t begin = std::min(layout.rank * rows, rule.rows);
      const std::int64_t end = std::min((layout.rank + 1) * rows, rule.rows);
      take_rows(part, begin, end - begin);
      part.local_rows = rows;
      part.split_axes = {"tp"};
      break;
    }
  }
  return part;
}

}  // namespace

TensorLayout make_tensor_layout(std::int64_t size, std::int64_t rank, std::int64_t num_kv_heads,
                                bool sequence_parallel) {
  PENTATRON_CHECK(size >= 1 && rank >= 0 && rank < size && num_kv_heads >= 1, kInternal,
                  "rank {} of {} with {} kv heads is no place on the tensor-parallel axis", rank,
                  size, num_kv_heads);
  PENTATRON_CHECK(
      num_kv_heads % size == 0 || size % num_kv_heads == 0, kConfig,
      "--num-query-groups (or --num-attention-heads) {} must be a multiple or a divisor "
      "of --tensor-model-parallel-size {}",
      num_kv_heads, size);
  TensorLayout layout;
  layout.size = size;
  layout.rank = rank;
  layout.kv_size = std::min(size, num_kv_heads);
  layout.rep_size = size / layout.kv_size;
  // One rank holds every row: sequence parallelism changes nothing there.
  layout.sequence_parallel = sequence_parallel && size > 1;
  return layout;
}

nn::ShardSpec lay_out(const std::vector<PartRule>& parts, const TensorLayout& layout) {
  nn::ShardSpec spec;
  std::int64_t rows = 0;
  for (const PartRule& rule : parts) {
    nn::ShardPart part = lay_out_part(rule, layout);
    part.local_row_begin = rows;
    rows += part.local_rows;
    if (spec.local_shape.empty()) spec.local_shape = part.box.size;
    spec.parts.push_back(std::move(part));
  }
  spec.local_shape.at(0) = rows;
  nn::check_spec(spec);
  return spec;
}

}  // namespace pentatron::parallel_layers
