// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/nn/unit.h"
#include "pentatron/tensor/ops.h"

// A small model on every layout. Only tests include it.
namespace pentatron::distributed::testing_support {

inline constexpr int kNumLayers = 2;

// dp is factored into dp_outer x dp_inner.
struct Grid {
  std::int64_t tp = 1;
  std::int64_t dp_inner = 1;
  std::int64_t dp_outer = 1;
  std::int64_t pp = 1;
  [[nodiscard]] std::int64_t world() const { return tp * dp_inner * dp_outer * pp; }
};

inline comm::RankGrid make_grid(const Grid& g) {
  return comm::RankGrid(
      {{"tp", g.tp, {}},
       {"cp", 1, {}},
       {"ep", 1, {}},
       {"dp", g.dp_inner * g.dp_outer, {{"dp_outer", g.dp_outer}, {"dp_inner", g.dp_inner}}},
       {"pp", g.pp, {}}});
}

inline nn::ShardSpec make_spec(const std::string& name, Shape shape,
                               std::int64_t padding_rows = 0) {
  nn::ShardPart part;
  part.name = name;
  part.logical_shape = shape;
  part.box = {Shape(shape.size(), 0), shape};
  part.local_rows = shape[0] + padding_rows;
  if (shape.size() < 2) part.role = nn::ShardRole::kVector;
  Shape local = shape;
  local[0] += padding_rows;
  return {{part}, local};
}

// An embedding (tied when the pipeline has two ends), per layer a weight and a norm that is a
// summand over tp, and a head. On two stages, each holds one layer.
struct Stage {
  Stage(comm::ParallelContext& context, const PrecisionPolicy& policy) {
    const std::int64_t pp = context.size("pp");
    const std::int64_t stage = context.coordinate("pp");
    const auto first_layer = static_cast<int>(stage * kNumLayers / pp);
    const auto end_layer = static_cast<int>((stage + 1) * kNumLayers / pp);
    if (context.is_first_stage()) {
      units.push_back({"embedding", {}});
      add(embedding_spec(context), policy);
    }
    for (int layer = first_layer; layer < end_layer; ++layer) {
      const std::string name = "layers." + std::to_string(layer);
      units.push_back({name, {}});
      add(make_spec(name + ".weight", {5, 3}), policy);
      nn::ShardSpec norm = make_spec(name + ".norm", {4});
      norm.parts[0].partial_grad_axes = {"tp"};
      add(norm, policy);
    }
    if (context.is_last_stage()) {
      units.push_back({"head", {}});
      if (pp > 1) add(embedding_spec(context), policy);
      add(make_spec("head.norm", {7}), policy);
    }
  }

  static nn::ShardSpec embedding_spec(comm::ParallelContext& context) {
    nn::ShardSpec spec = make_spec("embedding", {6, 3}, 2);
    spec.parts[0].role = nn::ShardRole::kWordEmbedding;
    spec.parts[0].tied = context.size("pp") > 1;
    return spec;
  }

  void add(nn::ShardSpec spec, const PrecisionPolicy& policy) {
    const std::string name = spec.parts[0].name;
    parameters.push_back(std::make_unique<nn::Parameter>(name, std::move(spec), policy));
    units.back().parameters.push_back(parameters.back().get());
  }

  std::vector<std::unique_ptr<nn::Parameter>> parameters;
  std::vector<nn::Unit> units;
};

// The elements of a part's box that a piece holds, of a tensor of the part's box.
inline Tensor piece_of(const Tensor& box, std::int64_t begin, std::int64_t length) {
  return box.reshape({-1}).narrow(0, begin, length);
}

}  // namespace pentatron::distributed::testing_support
