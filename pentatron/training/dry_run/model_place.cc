// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/dry_run/model_place.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/distributed/store_plan.h"
#include "pentatron/models/gpt/sharding.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/adapters.h"
#include "pentatron/training/dry_run/sizes.h"
#include "pentatron/training/freeze.h"
#include "pentatron/training/grid_place.h"
#include "pentatron/training/run_policy.h"

namespace pentatron::training::dry_run {
namespace {

constexpr std::int64_t kMaxLayers = 100'000;
constexpr std::int64_t kMaxPlaces = 65'536;  // of one data place

std::vector<config::StagePlan> stages_of(const RunPlan& run, std::int64_t rank) {
  const std::int64_t pp = run.grids.dense.size("pp");
  std::vector<config::StagePlan> own;
  for (auto stage = run.grids.dense.coordinate(rank, "pp");
       stage < static_cast<std::int64_t>(run.stages.size()); stage += pp) {
    own.push_back(run.stages[static_cast<std::size_t>(stage)]);
  }
  return own;
}

std::vector<nn::ParameterPlan> plans_of(const RunPlan& run, std::int64_t rank,
                                        const std::vector<config::StagePlan>& stages) {
  const parallel_layers::TensorLayout layout = parallel_layers::make_tensor_layout(
      comm::Place(run.grids, rank), run.config.parallel.sequence_parallel);
  std::vector<nn::ParameterPlan> plans;
  for (const config::StagePlan& stage : stages) {
    plans.push_back(models::plan_stage(run.config.model, layout, stage, run.specs));
    for (const nn::PlannedParameter& parameter : plans.back().parameters()) {
      std::int64_t bytes = tensor::item_bytes(run.policy.main_grad);
      for (const std::int64_t size : parameter.spec.local_shape) bytes = product({bytes, size});
    }
  }
  return plans;
}

// Trainable or not as in a run.
nn::PlannedUnits units_of(const RunPlan& run, const std::vector<nn::ParameterPlan>& plans) {
  nn::PlannedUnits units(plans, run.policy);
  std::vector<nn::Parameter*> parameters;
  for (const nn::Unit& unit : units.units()) {
    parameters.insert(parameters.end(), unit.parameters.begin(), unit.parameters.end());
  }
  freeze_parameters(run.config, parameters);
  if (run.config.model.lora_rank > 0) freeze_all_but_adapters(parameters);
  return units;
}

distributed::FlatLayoutOptions layout_options(const RunPlan& run,
                                              const distributed::StoreOptions& options) {
  std::int64_t shards = 1;
  for (const std::string& axis : options.shard_over) shards *= run.grids.dense.size(axis);
  return distributed::flat_layout_options(options, shards);
}

}  // namespace

RunPlan::RunPlan(const config::RunConfig& run)
    : config(run), policy(run_policy(run)), grids(comm::make_grids(run.parallel)) {
  PENTATRON_CHECK(config.model.num_layers <= kMaxLayers, kUnsupported,
                  "--dry-run plans at most {} layers, not --num-layers {}", kMaxLayers,
                  config.model.num_layers);
  const std::int64_t places = config.parallel.world_size / config.parallel.data_parallel_size;
  PENTATRON_CHECK(places <= kMaxPlaces, kUnsupported,
                  "--dry-run plans at most {} ranks beside data parallelism; tensor x context x "
                  "pipeline are {}",
                  kMaxPlaces, places);
  stages = config::plan_pipeline(config.model, config.parallel);
  specs = transformer::layer_specs(config.model);
}

ModelPlace::ModelPlace(const RunPlan& run, std::int64_t rank)
    : run_(run),
      stages_(stages_of(run, rank)),
      plans_(plans_of(run, rank, stages_)),
      units_(units_of(run, plans_)),
      options_(optimizer::store_options(
          run.config, grid_place(comm::Place(run.grids, rank), comm::GridKind::kDense))),
      layout_(units_.units(), layout_options(run, options_), run.policy) {}

std::int64_t ModelPlace::num_parameters(bool owned_only) const {
  std::int64_t count = 0;
  for (const nn::ParameterPlan& plan : plans_) {
    for (const nn::PlannedParameter& parameter : plan.parameters()) {
      for (const nn::ShardPart& part : parameter.spec.parts) {
        if (!owned_only || part.replica == 0) count += part.box.num_elements();
      }
    }
  }
  return count;
}

std::int64_t ModelPlace::num_frozen() const {
  std::int64_t count = 0;
  for (const nn::Parameter* parameter : layout_.frozen()) {
    for (const nn::ShardPart& part : parameter->spec().parts) {
      if (part.replica == 0) count += part.box.num_elements();
    }
  }
  return count;
}

std::int64_t ModelPlace::shard_of(std::int64_t rank) const {
  if (options_.sharding == distributed::Sharding::kNothing) return 0;
  const std::vector<std::int64_t> peers = run_.grids.dense.group_of(rank, options_.shard_over);
  return std::lower_bound(peers.begin(), peers.end(), rank) - peers.begin();
}

optimizer::TrainingStateBytes ModelPlace::state_of(std::int64_t rank) const {
  return optimizer::plan_training_state(layout_, options_, shard_of(rank), run_.config.optimizer,
                                        run_.policy);
}

std::int64_t ModelPlace::frozen_weights() const {
  std::int64_t elements = 0;
  for (const nn::Parameter* parameter : layout_.frozen()) {
    elements += parameter->num_local_elements();
  }
  return elements * tensor::item_bytes(run_.policy.parameter);
}

std::vector<std::int64_t> ModelPlace::unit_elements() const {
  std::vector<std::int64_t> elements(units_.units().size(), 0);
  for (const distributed::FlatBucket& bucket : layout_.buckets()) {
    for (const int unit : bucket.units) elements[static_cast<std::size_t>(unit)] += bucket.size();
  }
  return elements;
}

// A unit runs while the next one's weights come; a head that is tied to the embedding of its stage
// uses the embedding's, too.
std::int64_t ModelPlace::gathered_weights() const {
  if (options_.sharding != distributed::Sharding::kParameters) return 0;
  const std::vector<std::int64_t> elements = unit_elements();
  const std::vector<int>& layers = units_.layers();
  const int head = static_cast<int>(run_.config.model.num_layers);
  const bool tied = !run_.config.model.untie_embeddings_and_output_weights;
  std::int64_t most = 0;
  for (std::size_t unit = 0; unit < elements.size(); ++unit) {
    std::int64_t here = elements[unit];
    if (unit + 1 < elements.size()) here += elements[unit + 1];
    if (tied && stages_.size() == 1 && stages_[0].embedding && layers[unit] == head) {
      here = elements[unit] + elements[0];
      if (unit > 1) here += elements[unit - 1];
    }
    most = std::max(most, here);
  }
  return most * tensor::item_bytes(run_.policy.parameter);
}

std::int64_t ModelPlace::unit_gradients() const {
  if (options_.sharding < distributed::Sharding::kGradients) return 0;
  constexpr std::int64_t kReductionsUnderWay = 2;  // as sharded_gradients.cc has them
  const std::vector<std::int64_t> elements = unit_elements();
  std::int64_t largest_bucket = 0;
  for (const distributed::FlatBucket& bucket : layout_.buckets()) {
    largest_bucket = std::max(largest_bucket, bucket.size());
  }
  return *std::max_element(elements.begin(), elements.end()) *
             tensor::item_bytes(run_.policy.main_grad) +
         kReductionsUnderWay * largest_bucket * tensor::item_bytes(run_.policy.reduction);
}

}  // namespace pentatron::training::dry_run
