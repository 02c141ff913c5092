// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/leaf_rule.h"

#include <cmath>
#include <utility>

#include "pentatron/config/adapter_names.h"

namespace pentatron::parallel_layers {

namespace {

nn::InitSpec init_of(const LeafRule& rule) {
  if (rule.kind == LeafKind::kNorm) {
    return {rule.starts_at_zero ? nn::InitKind::kZeros : nn::InitKind::kOnes, 0.0};
  }
  if (!rule.xavier || rule.kind == LeafKind::kVector) return {nn::InitKind::kNormal, rule.std};
  std::int64_t rows = 0;
  for (const LeafPart& part : rule.parts) rows += part.rows;
  const double bound = std::sqrt(6.0 / static_cast<double>(rows + rule.columns));
  return {nn::InitKind::kUniform, bound / std::sqrt(3.0)};
}

// A's initial values are PyTorch's for a linear layer, uniform in +-1 / sqrt(inputs), and B's are
// zero. What is whole beside a weight that is cut through its inputs acts on every rank's share of
// the sum: its gradients are partial.
void add_adapters(nn::ParameterPlan& plan, const LeafRule& rule, const std::string& leaf, int unit,
                  const TensorLayout& layout) {
  using config::AdapterPart;
  const AdapterForm& form = rule.adapter;
  std::vector<PartRule> down;
  std::vector<PartRule> rest;
  for (const LeafPart& part : rule.parts) {
    if (!form.adapts(part.module)) continue;
    const std::string name = leaf + (part.suffix.empty() ? "" : "." + part.suffix);
    const Cut rows = part.cut_columns ? Cut{} : part.cut;
    const double std = 1.0 / std::sqrt(3.0 * static_cast<double>(rule.columns));
    down.push_back({.name = config::adapter_name(name, AdapterPart::kDown),
                    .rows = form.rank,
                    .columns = rule.columns,
                    .cut = part.cut_columns ? part.cut : Cut{},
                    .cut_columns = part.cut_columns,
                    .init = {nn::InitKind::kUniform, std}});
    rest.push_back({.name = config::adapter_name(name, AdapterPart::kUp),
                    .rows = part.rows,
                    .columns = form.rank,
                    .cut = rows,
                    .init = {nn::InitKind::kZeros, 0.0},
                    .of_cut_rows = part.cut_columns});
    if (!form.dora) continue;
    rest.push_back({.name = config::adapter_name(name, AdapterPart::kMagnitude),
                    .rows = part.rows,
                    .cut = rows,
                    .init = {nn::InitKind::kOnes, 0.0},
                    .of_cut_rows = part.cut_columns});
  }
  if (down.empty()) return;
  const auto add = [&](const std::string& name, const std::vector<PartRule>& parts,
                       nn::ShardRole role) {
    nn::ShardSpec spec = lay_out(parts, layout);
    for (nn::ShardPart& part : spec.parts) {
      if (part.role == nn::ShardRole::kMatrix) part.role = role;
    }
    plan.add({name, std::move(spec), unit});
  };
  add(config::adapter_name(leaf, AdapterPart::kDown), down, rule.role);
  for (const PartRule& part : rest) add(part.name, {part}, nn::ShardRole::kLowRankUp);
}

}  // namespace

LeafRule norm_rule(std::string name, std::int64_t width, const NormForm& form) {
  return {.name = std::move(name),
          .kind = LeafKind::kNorm,
          .parts = {{.rows = width}},
          .bias = form.kind == NormKind::kLayerNorm,
          .starts_at_zero = form.zero_centred};
}

void add_leaf(nn::ParameterPlan& plan, const LeafRule& rule, const std::string& prefix, int unit,
              const TensorLayout& layout) {
  const bool is_matrix = rule.kind == LeafKind::kMatrix;
  const char* const weight = rule.kind == LeafKind::kVector ? "" : ".weight";
  const std::string leaf = prefix + rule.name;
  const auto part_name = [&](const LeafPart& part, const char* kind) {
    return leaf + (part.suffix.empty() ? "" : "." + part.suffix) + kind;
  };
  std::vector<PartRule> weights;
  std::vector<PartRule> biases;
  for (const LeafPart& part : rule.parts) {
    weights.push_back({.name = part_name(part, weight),
                       .rows = part.rows,
                       .columns = is_matrix ? rule.columns : 0,
                       .cut = part.cut,
                       .cut_columns = part.cut_columns,
                       .init = init_of(rule),
                       .padded_rows = rule.padded_rows,
                       .of_cut_rows = rule.of_cut_rows});
    biases.push_back({.name = part_name(part, ".bias"),
                      .rows = part.rows,
                      .cut = part.cut_columns ? Cut{} : part.cut,
                      .init = {nn::InitKind::kZeros, 0.0},
                      .of_cut_rows = rule.of_cut_rows});
  }
  nn::ShardSpec spec = lay_out(weights, layout);
  if (is_matrix) {
    for (nn::ShardPart& part : spec.parts) part.role = rule.role;
  }
  plan.add({leaf + weight, std::move(spec), unit});
  if (rule.bias) plan.add({leaf + ".bias", lay_out(biases, layout), unit});
  if (is_matrix) add_adapters(plan, rule, leaf, unit, layout);
}

}  // namespace pentatron::parallel_layers
