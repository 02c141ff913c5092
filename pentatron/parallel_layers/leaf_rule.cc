// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/leaf_rule.h"

#include <utility>

namespace pentatron::parallel_layers {

LeafRule norm_rule(std::string name, std::int64_t width, std::string_view kind) {
  return {.name = std::move(name),
          .kind = LeafKind::kNorm,
          .parts = {{.rows = width}},
          .bias = kind == "LayerNorm"};
}

void add_leaf(nn::ParameterPlan& plan, const LeafRule& rule, const std::string& prefix, int unit,
              const TensorLayout& layout) {
  const bool is_norm = rule.kind == LeafKind::kNorm;
  const std::string leaf = prefix + rule.name;
  const auto part_name = [&](const LeafPart& part, const char* kind) {
    return leaf + (part.suffix.empty() ? "" : "." + part.suffix) + kind;
  };
  std::vector<PartRule> weights;
  std::vector<PartRule> biases;
  for (const LeafPart& part : rule.parts) {
    weights.push_back({.name = part_name(part, ".weight"),
                       .rows = part.rows,
                       .columns = is_norm ? 0 : rule.columns,
                       .cut = part.cut,
                       .cut_columns = part.cut_columns,
                       .init = is_norm ? nn::InitSpec{nn::InitKind::kOnes, 0.0}
                                       : nn::InitSpec{nn::InitKind::kNormal, rule.std},
                       .padded_rows = rule.padded_rows,
                       .of_cut_rows = rule.of_cut_rows});
    biases.push_back({.name = part_name(part, ".bias"),
                      .rows = part.rows,
                      .cut = part.cut_columns ? Cut{} : part.cut,
                      .init = {nn::InitKind::kZeros, 0.0},
                      .of_cut_rows = rule.of_cut_rows});
  }
  nn::ShardSpec spec = lay_out(weights, layout);
  if (!is_norm) {
    for (nn::ShardPart& part : spec.parts) part.role = rule.role;
  }
  plan.add({leaf + ".weight", std::move(spec), unit});
  if (rule.bias) plan.add({leaf + ".bias", lay_out(biases, layout), unit});
}

}  // namespace pentatron::parallel_layers
