// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/comm/places.h"
#include "pentatron/config/config.h"
#include "pentatron/config/pipeline_layout.h"
#include "pentatron/distributed/flat_layout.h"
#include "pentatron/distributed/store_options.h"
#include "pentatron/nn/planned_units.h"
#include "pentatron/optimizer/state_plan.h"
#include "pentatron/transformer/layer_spec.h"

namespace pentatron::training::dry_run {

// What all places of a run share.
struct RunPlan {
  // `config` is resolved, vocabulary included. Sizes that do not fit together: kConfig; more layers
  // or ranks of one data place than are worth planning: kUnsupported.
  explicit RunPlan(const config::RunConfig& config);

  config::RunConfig config;
  PrecisionPolicy policy;
  comm::Grids grids;
  std::vector<config::StagePlan> stages;
  std::vector<transformer::LayerSpec> specs;
};

// The stages of one tensor- and pipeline-parallel place, their units and flat buffer: the same for
// all data- and context-parallel ranks there. Nothing has memory.
class ModelPlace final {
 public:
  // Of the place where `rank` stands. `run` outlives it.
  ModelPlace(const RunPlan& run, std::int64_t rank);

  [[nodiscard]] const RunPlan& run() const { return run_; }
  // This place's stages and the plans of their parameters.
  [[nodiscard]] const std::vector<config::StagePlan>& stages() const { return stages_; }
  [[nodiscard]] const std::vector<nn::ParameterPlan>& plans() const { return plans_; }
  [[nodiscard]] const nn::PlannedUnits& units() const { return units_; }
  [[nodiscard]] const distributed::StoreOptions& options() const { return options_; }
  [[nodiscard]] const distributed::FlatLayout& layout() const { return layout_; }

  // Logical elements that a rank here holds, and those of them that no other rank counts.
  [[nodiscard]] std::int64_t num_parameters(bool owned_only) const;
  // Of the latter, those that do not learn.
  [[nodiscard]] std::int64_t num_frozen() const;
  // Of a rank that stands here: its place among those that share the state.
  [[nodiscard]] std::int64_t shard_of(std::int64_t rank) const;
  [[nodiscard]] optimizer::TrainingStateBytes state_of(std::int64_t rank) const;
  // Bytes of weights that do not learn: every rank holds its own whole, outside the store.
  [[nodiscard]] std::int64_t frozen_weights() const;
  // Bytes of whole weights, and of whole gradients with reductions under way, that stand beside a
  // rank's shards for the time of a unit, at most. 0 where they are not sharded.
  [[nodiscard]] std::int64_t gathered_weights() const;
  [[nodiscard]] std::int64_t unit_gradients() const;

 private:
  // Elements of the buckets of each unit.
  [[nodiscard]] std::vector<std::int64_t> unit_elements() const;

  const RunPlan& run_;
  std::vector<config::StagePlan> stages_;
  std::vector<nn::ParameterPlan> plans_;
  nn::PlannedUnits units_;
  distributed::StoreOptions options_;
  distributed::FlatLayout layout_;
};

}  // namespace pentatron::training::dry_run
