// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/config/config.h"

// Which tensors of a Hugging Face folder hold which parts of the model (nn/shard_spec.h), in which
// rows. One list of rules a family serves both ways.
namespace pentatron::families {

// Where the rows of a part lie in a tensor: row b * block + i of the part is row first + b * stride
// + i of the tensor, 0 <= i < block. Block 0: all rows together, from `first` on.
struct RowBlocks {
  std::int64_t first = 0;
  std::int64_t block = 0;
  std::int64_t stride = 0;
};

// Beginnings of names; "{}" stands for the layer's number, and what follows ("weight", "bias") is
// the same on both sides.
struct NameRule {
  std::string_view ours;    // "decoder.layers.{}.self_attention.linear_qkv.q."
  std::string_view theirs;  // "model.layers.{}.self_attn.q_proj."
  RowBlocks (*rows)(const config::ModelConfig& model) = nullptr;  // null: the part is the tensor
  bool transposed = false;  // a matrix is stored as its transpose: [inputs, outputs]
};

// The rules of a family that names most parts as another does: `own` ones go before `others`.
[[nodiscard]] std::vector<NameRule> names_with(std::span<const NameRule> others,
                                               std::initializer_list<NameRule> own);

// A part by name and logical shape.
struct Part {
  std::string name;
  std::vector<std::int64_t> shape;
};

// One part and its place.
struct TensorLink {
  Part part;
  std::string tensor;
  std::vector<std::int64_t> tensor_shape = {};  // as stored
  RowBlocks rows;                               // of the tensor, before it is transposed
  bool transposed = false;
};

// A link for each part, in the order of the parts. A part that no rule names: kUnsupported, for
// this family has no such weight.
[[nodiscard]] std::vector<TensorLink> link_parts(std::string_view family,
                                                 std::span<const NameRule> rules,
                                                 const config::ModelConfig& model,
                                                 std::span<const Part> parts);

// Rows of a tensor that holds query, key and value one below the other.
[[nodiscard]] RowBlocks stacked_query(const config::ModelConfig& model);
[[nodiscard]] RowBlocks stacked_key(const config::ModelConfig& model);
[[nodiscard]] RowBlocks stacked_value(const config::ModelConfig& model);
// Of one that holds, group by group, the queries of a group, its key and its value.
[[nodiscard]] RowBlocks grouped_query(const config::ModelConfig& model);
[[nodiscard]] RowBlocks grouped_key(const config::ModelConfig& model);
[[nodiscard]] RowBlocks grouped_value(const config::ModelConfig& model);
// Of one that holds the gate above what it gates.
[[nodiscard]] RowBlocks stacked_gate(const config::ModelConfig& model);
[[nodiscard]] RowBlocks stacked_up(const config::ModelConfig& model);

}  // namespace pentatron::families
