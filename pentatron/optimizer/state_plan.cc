// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/state_plan.h"

#include "pentatron/base/error.h"
#include "pentatron/distributed/store_plan.h"
#include "pentatron/optimizer/rules/adamw.h"
#include "pentatron/optimizer/rules/muon.h"
#include "pentatron/optimizer/rules/sgd.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {

std::vector<std::string_view> states_of(const config::OptimizerConfig& config, bool matrix) {
  if (config.optimizer == "sgd") return make_sgd(config, WidthScaling{})->states();
  if (config.optimizer == "muon" && matrix) return muon_states();
  PENTATRON_CHECK(config.optimizer == "adam" || config.optimizer == "muon", kConfig,
                  "--optimizer is '{}', expected adam, sgd or muon", config.optimizer);
  return make_adamw(config, WidthScaling{})->states();
}

TrainingStateBytes plan_training_state(const distributed::FlatLayout& layout,
                                       const distributed::StoreOptions& options, std::int64_t shard,
                                       const config::OptimizerConfig& config,
                                       const PrecisionPolicy& policy) {
  using distributed::FlatRange;
  std::vector<FlatRange> all;
  std::vector<FlatRange> by_rule[2];  // vectors and all that follows the usual rule; matrices
  const bool split = config.optimizer == "muon";
  for (const distributed::PlannedPiece& piece :
       distributed::plan_pieces(layout, options.sharding, shard)) {
    const distributed::FlatSegment& segment = piece.segment;
    const bool matrix = split && nn::is_matrix(segment.parameter->spec());
    all.push_back({segment.flat_begin, segment.length});
    by_rule[matrix ? 1 : 0].push_back(all.back());
  }
  const auto bytes = [](const std::vector<FlatRange>& pieces, DType dtype) {
    return distributed::pack(pieces).num_elements * tensor::item_bytes(dtype);
  };
  TrainingStateBytes plan{.parameters = distributed::held_parameters(layout, options.sharding) *
                                        tensor::item_bytes(policy.parameter),
                          .gradients = distributed::held_gradients(layout, options.sharding) *
                                       tensor::item_bytes(policy.main_grad)};
  if (policy.main_parameter != policy.parameter || options.state_on_host) {
    plan.main_parameters = bytes(all, policy.main_parameter);
  }
  if (options.state_on_host) plan.host_gradients = bytes(all, policy.main_grad);
  for (const bool matrix : {false, true}) {
    const auto count = static_cast<std::int64_t>(states_of(config, matrix).size());
    plan.moments += count * bytes(by_rule[matrix ? 1 : 0], policy.state);
  }
  return plan;
}

}  // namespace pentatron::optimizer
