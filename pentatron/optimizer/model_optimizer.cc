// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/model_optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/config/choices.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {
namespace {

distributed::Sharding sharding_of(const config::ParallelConfig& parallel) {
  using distributed::Sharding;
  if (!config::shards_over_data(parallel)) return Sharding::kNothing;
  if (!parallel.use_megatron_fsdp) return Sharding::kOptimizer;
  const std::string& strategy = parallel.data_parallel_sharding_strategy;
  if (strategy == "optim") return Sharding::kOptimizer;
  if (strategy == "optim_grads") return Sharding::kGradients;
  PENTATRON_CHECK(
      strategy == "optim_grads_params", kConfig,
      "--data-parallel-sharding-strategy is '{}', expected no_shard, optim, optim_grads "
      "or optim_grads_params",
      strategy);
  return Sharding::kParameters;
}

bool stands_on(const nn::Parameter& parameter, const std::string& grid) {
  return !parameter.spec().parts.empty() && parameter.spec().parts[0].grid == grid;
}

}  // namespace

distributed::StoreOptions store_options(const config::RunConfig& config, const GridPlace& place) {
  const config::OptimizerConfig& optimizer = config.optimizer;
  const bool matrices = config::updates_matrices(config::optimizer_kind(optimizer));
  return {.sharding = sharding_of(config.parallel),
          .cut = matrices ? distributed::ShardCut::kMatrices : distributed::ShardCut::kElements,
          .shard_over = place.shard_over,
          .replicate_over = place.replicate_over,
          .grid = place.grid,
          .bucket_elements = config.parallel.ddp_bucket_size,
          .num_buckets = config.parallel.ddp_num_buckets,
          .overlap_gather = config.parallel.overlap_param_gather,
          .state_on_host = optimizer.optimizer_cpu_offload,
          .host_fraction = optimizer.optimizer_offload_fraction,
          .overlap_host_copies = optimizer.overlap_cpu_optimizer_d2h_h2d};
}

ModelOptimizer::ModelOptimizer(const std::vector<nn::Unit>& units,
                               const std::vector<GridPlace>& places,
                               const config::RunConfig& config, const PrecisionPolicy& policy,
                               Device device) {
  for (const nn::Unit& unit : units) {
    for (const nn::Parameter* parameter : unit.parameters) {
      const bool known = std::any_of(places.begin(), places.end(), [&](const GridPlace& place) {
        return stands_on(*parameter, place.grid);
      });
      PENTATRON_CHECK(known, kInternal, "weight {} stands on a grid that has no store",
                      parameter->local_name());
    }
  }
  // Every rank makes every store, so that all take part in the norm.
  for (const GridPlace& place : places) {
    grids_.push_back(std::make_unique<Grid>(units, place, config, policy, device));
  }
}

ModelOptimizer::~ModelOptimizer() = default;

void ModelOptimizer::listen_to(WeightGradQueue& queue) {
  for (auto& grid : grids_) grid->store.listen_to(queue);
}
void ModelOptimizer::set_timers(Timers* timers) {
  for (auto& grid : grids_) {
    grid->store.set_timers(timers);
    grid->optimizer.set_timers(timers);
  }
}
void ModelOptimizer::fill(const std::function<void(nn::Parameter&)>& fill) {
  for (auto& grid : grids_) grid->store.fill(fill);
}
void ModelOptimizer::begin_step() {
  for (auto& grid : grids_) grid->store.begin_step();
}
void ModelOptimizer::begin_last_micro_batch(int first_unit, int end_unit) {
  for (auto& grid : grids_) grid->store.begin_last_micro_batch(first_unit, end_unit);
}
void ModelOptimizer::finish_step() {
  for (auto& grid : grids_) grid->store.finish_step();
}
void ModelOptimizer::tell_values_changed() {
  for (auto& grid : grids_) grid->store.tell_values_changed();
}

void ModelOptimizer::settle() {
  for (auto& grid : grids_) grid->store.settle();
}
void ModelOptimizer::on_forward_begin(int unit) {
  for (auto& grid : grids_) grid->store.on_forward_begin(unit);
}
void ModelOptimizer::on_forward_end(int unit) {
  for (auto& grid : grids_) grid->store.on_forward_end(unit);
}
void ModelOptimizer::on_backward_begin(int unit) {
  for (auto& grid : grids_) grid->store.on_backward_begin(unit);
}
void ModelOptimizer::on_backward_end(int unit) {
  for (auto& grid : grids_) grid->store.on_backward_end(unit);
}

DeviceStepResult ModelOptimizer::launch_step(const StepScalars& scalars,
                                             const AfterUpdate& after_update) {
  const tensor::NoGrad no_grad;
  if (grids_.size() == 1) return grids_[0]->optimizer.launch_step(scalars, after_update);
  StepScalars all = scalars;
  if (!all.grad_norm.defined()) {
    Tensor squares = grids_[0]->optimizer.gradient_squares();
    for (std::size_t i = 1; i < grids_.size(); ++i) {
      squares = squares.add(grids_[i]->optimizer.gradient_squares());
    }
    all.grad_norm = squares.sqrt();
    if (all.loss_scale.defined()) all.grad_norm.div_(all.loss_scale);
  }
  DeviceStepResult result;
  for (auto& grid : grids_) result = grid->optimizer.launch_step(all, after_update);
  return result;
}

Tensor ModelOptimizer::num_zero_gradients() {
  const tensor::NoGrad no_grad;
  Tensor count = grids_[0]->optimizer.num_zero_gradients();
  for (std::size_t i = 1; i < grids_.size(); ++i) {
    count = count.add(grids_[i]->optimizer.num_zero_gradients());
  }
  return count;
}

std::int64_t ModelOptimizer::num_updates() const { return grids_[0]->optimizer.num_updates(); }

void ModelOptimizer::set_num_updates(std::int64_t count) {
  for (auto& grid : grids_) grid->optimizer.set_num_updates(count);
}

std::vector<StateSlice> ModelOptimizer::state_slices(bool owner_only) {
  std::vector<StateSlice> slices;
  for (auto& grid : grids_) {
    for (StateSlice& slice : grid->optimizer.state_slices(owner_only)) {
      slices.push_back(std::move(slice));
    }
  }
  return slices;
}

void ModelOptimizer::refresh_parameters() {
  for (auto& grid : grids_) grid->optimizer.refresh_parameters();
}

void ModelOptimizer::reset_from_parameters() {
  for (auto& grid : grids_) grid->optimizer.reset_from_parameters();
}

double ModelOptimizer::parameter_norm() {
  if (grids_.size() == 1) return grids_[0]->optimizer.parameter_norm();
  double squares = 0;
  for (auto& grid : grids_) {
    const double norm = grid->optimizer.parameter_norm();
    squares += norm * norm;
  }
  return std::sqrt(squares);
}

std::int64_t ModelOptimizer::state_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& grid : grids_) bytes += grid->optimizer.state_bytes();
  return bytes;
}

}  // namespace pentatron::optimizer
