// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/tensor/tensor.h"

// The one description of sharding. Gradient reduction, norm counting, the sharded optimizer,
// checkpoints, name maps and parameter counts read this and nothing else. Data-parallel sharding is
// never in it: flat buffers map that.
namespace pentatron::nn {

// A half-open box in the coordinates of a logical tensor. Any size 0: empty.
struct Box {
  Shape offset;
  Shape size;
  [[nodiscard]] std::int64_t num_elements() const;
  [[nodiscard]] bool empty() const { return num_elements() == 0; }
  bool operator==(const Box&) const = default;
};

enum class InitKind { kNormal, kUniform, kZeros, kOnes };
struct InitSpec {
  InitKind kind = InitKind::kNormal;
  double std = 0.02;  // of both distributions; the uniform one lies in +-sqrt(3) std
};

// What a part is to the optimizer.
enum class ShardRole {
  kMatrix,         // of a linear layer
  kQkv,            // query, key or value rows of a fused weight: a matrix of its own
  kPositionTable,  // a matrix, but to maximal update parametrisation an embedding
  kWordEmbedding,  // --decoupled-lr applies to it and to the output layer
  kOutput,
  kLowRankUp,      // B of an adapter, of few inputs at any width: to that an embedding too
  kVector,         // of a norm, or a bias: no weight decay
  kDecayedVector,  // a vector to which weight decay applies all the same
};
[[nodiscard]] constexpr bool decays(ShardRole role) { return role != ShardRole::kVector; }
[[nodiscard]] constexpr bool has_decoupled_lr(ShardRole role) {
  return role == ShardRole::kWordEmbedding || role == ShardRole::kOutput;
}

// One named piece of a parameter (q, k, v; gate, up; usually one). Pieces lie one below the other
// along dim 0 of the local tensor.
struct ShardPart {
  std::string name;                  // global, independent of the layout:
                                     // "decoder.layers.17.self_attention.linear_qkv.q.weight"
  Shape logical_shape;               // true shape without padding
  Box box;                           // what this rank holds of it (no padding rows; may be empty)
  std::int64_t local_row_begin = 0;  // first row in the local tensor
  std::int64_t local_rows =
      0;  // rows in the local tensor, padding included; box.size[0] of them are real and come first
  // Axes, factors or computed parts ("tp/2") of them that cut it
  std::vector<std::string> split_axes;
  std::vector<std::string> replicate_axes;  // likewise, over which equal copies of the box
                                            // stand (data-parallel axes never named)
  std::int64_t replica = 0;  // 0: this copy counts (norms, checkpoints, parameter counts)
  std::vector<std::string>
      partial_grad_axes;  // axes over which the local gradient is only a summand: summed before use
  InitSpec init;
  ShardRole role = ShardRole::kMatrix;
  bool tied = false;  // other stages may hold the same name: gradients are summed over its holders,
                      // replica says who counts
  std::string grid = "dense";  // or "expert"
};

struct ShardSpec {
  std::vector<ShardPart> parts;
  Shape local_shape;
};

// Whether every part is a matrix to the optimizer (kMatrix, kQkv, kPositionTable,
// kLowRankUp).
[[nodiscard]] bool is_matrix(const ShardSpec& spec);

// The real rows of a part inside a local tensor (a view of shape box.size).
[[nodiscard]] Tensor part_view(const Tensor& local, const ShardPart& part);

// Internal error unless: parts lie in order without overlap inside local_shape, boxes inside
// logical shapes, sizes agree.
void check_spec(const ShardSpec& spec);

// For tests and planners: do the boxes (each once) tile the logical shape exactly?
[[nodiscard]] bool tiles_exactly(const Shape& logical_shape, const std::vector<Box>& boxes);

}  // namespace pentatron::nn
