// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/dry_run/leaves.h"

#include <vector>

namespace pentatron::training::dry_run {
namespace {

using transformer::SublayerForm;

// `modules`: of its parts, as --lora-target-modules names them.
Leaf leaf_of(const config::ModelConfig& model, const std::vector<const char*>& modules) {
  if (model.lora_rank == 0) return {};
  const parallel_layers::AdapterForm form = transformer::adapter_form(model);
  Leaf leaf{.learns = false, .adapters = 0};
  for (const char* module : modules) leaf.adapters += form.adapts(module) ? 1 : 0;
  leaf.learns = leaf.adapters > 0;
  return leaf;
}

// One product, which no adapter is added to.
LeafPair linear_leaves(const config::ModelConfig& model) {
  return {.first = leaf_of(model, {}), .last = leaf_of(model, {})};
}

}  // namespace

LeafPair mixer_leaves(const config::ModelConfig& model, const transformer::LayerSpec& spec) {
  if (spec.mixer.form == SublayerForm::kLinear) return linear_leaves(model);
  std::vector<const char*> qkv = {"q", "k", "v"};
  if (model.attention_output_gate) qkv.push_back("attention_gate");
  return {.first = leaf_of(model, qkv), .last = leaf_of(model, {"o"})};
}

LeafPair ffn_leaves(const config::ModelConfig& model, const transformer::LayerSpec& spec) {
  if (spec.ffn.form == SublayerForm::kLinear) return linear_leaves(model);
  std::vector<const char*> fc1 = {"up"};
  if (spec.ffn.gate) fc1.push_back("gate");
  return {.first = leaf_of(model, fc1), .last = leaf_of(model, {"down"})};
}

}  // namespace pentatron::training::dry_run
