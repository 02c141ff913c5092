// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/tensor_layout.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::parallel_layers {
namespace {

constexpr const char* kTensorAxis = "tp";
constexpr const char* kExpertTensorAxis = "etp";

// Every rank of the grid's tensor-parallel axis holds all.
void keep_whole(nn::ShardPart& part, const PartRule& rule, const TensorLayout& layout) {
  const bool expert = part.grid == "expert";
  const char* const axis = expert ? kExpertTensorAxis : kTensorAxis;
  part.replicate_axes = {axis};
  part.replica = layout.place.coordinate(axis);
  const bool own_heads = rule.of_cut_rows && layout.place.size(axis) > 1;
  if ((layout.sequence_parallel && !expert) || own_heads) part.partial_grad_axes = {axis};
}

std::int64_t unit_size(const PartRule& rule, std::int64_t extent) {
  PENTATRON_CHECK(rule.cut.units >= 1 && extent % rule.cut.units == 0, kConfig,
                  "{}: its {} {} do not divide into {} units ({})", rule.name, extent,
                  rule.cut_columns ? "columns" : "rows", rule.cut.units, rule.cut.option);
  return extent / rule.cut.units;
}

void cut_rows(nn::ShardPart& part, const PartRule& rule, const Share& share) {
  const std::int64_t padded = rule.padded_rows == 0 ? rule.rows : rule.padded_rows;
  PENTATRON_CHECK(padded >= rule.rows, kConfig,
                  "{}: the padded vocabulary {} is smaller than the vocabulary {}; change "
                  "--padded-vocab-size",
                  rule.name, padded, rule.rows);
  const std::int64_t unit = unit_size(rule, padded);
  const std::int64_t begin = std::min(share.begin * unit, rule.rows);
  const std::int64_t end = std::min((share.begin + share.size) * unit, rule.rows);
  part.box.offset[0] = begin;
  part.box.size[0] = end - begin;
  part.local_rows = share.size * unit;
}

void cut_columns(nn::ShardPart& part, const PartRule& rule, const Share& share) {
  const std::int64_t unit = unit_size(rule, rule.columns);
  part.box.offset[1] = share.begin * unit;
  part.box.size[1] = share.size * unit;
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
  part.grid = rule.grid;
  part.role = rule.columns > 0 ? nn::ShardRole::kMatrix : nn::ShardRole::kVector;
  if (rule.cut.axis.empty()) {
    keep_whole(part, rule, layout);
    return part;
  }
  const Share share = share_of(rule.cut, layout.place, rule.name);
  if (rule.cut_columns) {
    cut_columns(part, rule, share);
  } else {
    cut_rows(part, rule, share);
  }
  if (!share.split_axis.empty()) part.split_axes = {share.split_axis};
  if (!share.replicate_axis.empty()) {
    part.replicate_axes = {share.replicate_axis};
    part.partial_grad_axes = {share.replicate_axis};
    part.replica = share.replica;
  }
  return part;
}

}  // namespace

TensorLayout make_tensor_layout(comm::Place place, bool sequence_parallel) {
  const bool alone = place.size(kTensorAxis) == 1;
  return {.place = std::move(place), .sequence_parallel = sequence_parallel && !alone};
}

TensorLayout make_tensor_layout(std::int64_t size, std::int64_t rank, bool sequence_parallel) {
  return make_tensor_layout(comm::Place({{kTensorAxis, size, rank}}), sequence_parallel);
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
