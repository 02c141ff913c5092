// SPDX-License-Identifier: Apache-2.0
#include "pentatron/models/registry.h"

#include <fmt/ranges.h>

#include <array>

#include "pentatron/base/error.h"
#include "pentatron/models/gpt/gpt_stage.h"

namespace pentatron::models {
namespace {

using Factory = std::unique_ptr<nn::Stage> (*)(const config::ModelConfig&,
                                               const parallel_layers::LeafContext&,
                                               const config::StagePlan&);

template <typename Model>
std::unique_ptr<nn::Stage> make(const config::ModelConfig& config,
                                const parallel_layers::LeafContext& context,
                                const config::StagePlan& plan) {
  return std::make_unique<Model>(config, context, plan);
}

struct Kind {
  std::string_view name;
  Factory factory;
};
// One line a model.
constexpr std::array kKinds = {
    Kind{"gpt", make<GptStage>},
};

}  // namespace

std::string_view model_kind(const config::ModelConfig&) { return "gpt"; }

std::vector<std::string_view> model_kinds() {
  std::vector<std::string_view> names;
  for (const Kind& kind : kKinds) names.push_back(kind.name);
  return names;
}

std::unique_ptr<nn::Stage> make_stage(std::string_view kind, const config::ModelConfig& config,
                                      const parallel_layers::LeafContext& context,
                                      const config::StagePlan& plan) {
  for (const Kind& known : kKinds) {
    if (known.name == kind) return known.factory(config, context, plan);
  }
  PENTATRON_THROW(kConfig, "model kind '{}' is not one of: {}", kind,
                  fmt::join(model_kinds(), ", "));
}

}  // namespace pentatron::models
