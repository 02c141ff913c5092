// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/state_plan.h"

#include <array>
#include <numeric>

#include "pentatron/base/error.h"
#include "pentatron/config/choices.h"
#include "pentatron/distributed/store_plan.h"
#include "pentatron/optimizer/rules/adamw.h"
#include "pentatron/optimizer/rules/lion.h"
#include "pentatron/optimizer/rules/muon.h"
#include "pentatron/optimizer/rules/sgd.h"
#include "pentatron/optimizer/rules/soap.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {
namespace {

using distributed::FlatRange;

// Pieces of a rank on one side, the device or the host.
struct Side {
  std::vector<FlatRange> all;
  std::vector<FlatRange> by_rule[2];  // vectors and all that follows the usual rule; matrices
  std::int64_t whole_elements = 0;    // SOAP's state beside pieces
};

std::int64_t bytes_of(const std::vector<FlatRange>& pieces, DType dtype) {
  return distributed::pack(pieces).num_elements * tensor::item_bytes(dtype);
}

std::int64_t moments_of(const Side& side, const config::OptimizerConfig& config,
                        const PrecisionPolicy& policy) {
  std::int64_t bytes = side.whole_elements * tensor::item_bytes(policy.state);
  for (const bool matrix : {false, true}) {
    for (const std::string_view state : states_of(config, matrix)) {
      bytes += bytes_of(side.by_rule[matrix ? 1 : 0], state_dtype(config, policy, state));
    }
  }
  return bytes;
}

}  // namespace

std::vector<std::string_view> states_of(const config::OptimizerConfig& config, bool matrix) {
  const config::OptimizerKind kind = config::optimizer_kind(config);
  if (kind == config::OptimizerKind::kSgd) return make_sgd(config, WidthScaling{})->states();
  if (kind == config::OptimizerKind::kLion) return make_lion()->states();
  if (kind == config::OptimizerKind::kMuon && matrix) return muon_states();
  if (kind == config::OptimizerKind::kSoap && matrix) return soap_states();
  return make_adamw(config, WidthScaling{}, /*seed=*/0)->states();
}

DType state_dtype(const config::OptimizerConfig& config, const PrecisionPolicy& policy,
                  std::string_view state) {
  if (!config.use_precision_aware_optimizer) return policy.state;
  const std::string& name = state == "exp_avg" ? config.exp_avg_dtype : config.exp_avg_sq_dtype;
  // fp32 is the name of the usual width, whatever the policy has.
  if (name == "fp32") return policy.state;
  return tensor::parse_dtype(name == "fp8" ? "fp8_e4m3" : name);
}

std::int64_t soap_elements(std::int64_t rows, std::int64_t columns) {
  std::int64_t elements = rows * columns;
  for (const std::int64_t side : {rows, columns}) {
    if (side <= kMaxPreconditionedSide) elements += 2 * side * side;
  }
  return elements;
}

TrainingStateBytes plan_training_state(const distributed::FlatLayout& layout,
                                       const distributed::StoreOptions& options, std::int64_t shard,
                                       const config::OptimizerConfig& config,
                                       const PrecisionPolicy& policy) {
  std::array<Side, 2> sides;  // device, host
  const config::OptimizerKind kind = config::optimizer_kind(config);
  const bool split = config::updates_matrices(kind);
  const auto pieces = distributed::plan_pieces(layout, options.sharding, shard);
  const std::vector<bool> on_host = distributed::pieces_on_host(pieces, options);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const distributed::FlatSegment& segment = pieces[i].segment;
    const bool matrix = split && nn::is_matrix(segment.parameter->spec());
    Side& side = sides[on_host[i] ? 1 : 0];
    side.all.push_back({segment.flat_begin, segment.length});
    side.by_rule[matrix ? 1 : 0].push_back(side.all.back());
    if (!matrix || kind != config::OptimizerKind::kSoap) continue;
    const Shape& shape = segment.part->logical_shape;
    side.whole_elements += soap_elements(shape[0], tensor::num_elements(shape) / shape[0]);
  }
  TrainingStateBytes plan{.parameters = distributed::held_parameters(layout, options.sharding) *
                                        tensor::item_bytes(policy.parameter),
                          .gradients = distributed::held_gradients(layout, options.sharding) *
                                       tensor::item_bytes(policy.main_grad)};
  if (policy.main_parameter != policy.parameter) {
    plan.main_parameters = bytes_of(sides[0].all, policy.main_parameter);
  }
  plan.moments = moments_of(sides[0], config, policy);
  plan.host_main_parameters = bytes_of(sides[1].all, policy.main_parameter);
  plan.host_moments = moments_of(sides[1], config, policy);
  plan.host_gradients = bytes_of(sides[1].all, policy.main_grad);
  if (options.overlap_host_copies) {
    plan.host_parameters = bytes_of(sides[1].all, policy.parameter);
  }
  return plan;
}

}  // namespace pentatron::optimizer
