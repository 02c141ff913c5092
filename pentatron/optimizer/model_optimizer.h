// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/optimizer/optimizer.h"

namespace pentatron::optimizer {

// Where the parameters of one grid are reduced and sharded.
struct GridPlace {
  std::string grid = "dense";  // nn::ShardPart::grid
  comm::ParallelContext* context = nullptr;
  std::vector<std::string> shard_over = {"dp", "cp"};
  std::vector<std::string> replicate_over = {};
};

// What the options say of one grid: --use-distributed-optimizer, --use-megatron-fsdp with
// --data-parallel-sharding-strategy, --overlap-param-gather, --optimizer, --optimizer-cpu-offload
// with its fraction and overlap.
[[nodiscard]] distributed::StoreOptions store_options(const config::RunConfig& config,
                                                      const GridPlace& place);

// The training state of a rank's units: a store and an optimizer for each grid, and one gradient
// norm over all of them. Errors are theirs; a unit's parameter on a grid that is not listed:
// kInternal.
class ModelOptimizer final : public ops::UnitEventSink {
 public:
  ModelOptimizer(const std::vector<nn::Unit>& units, const std::vector<GridPlace>& places,
                 const config::RunConfig& config, const PrecisionPolicy& policy,
                 Device device = kCpu);
  ~ModelOptimizer() override;

  // As in ParameterStore, for all.
  void listen_to(WeightGradQueue& queue);
  void set_timers(Timers* timers);
  void fill(const std::function<void(nn::Parameter&)>& fill);
  void begin_step();
  void begin_last_micro_batch(int first_unit, int end_unit);
  void finish_step();
  void settle();
  void tell_values_changed();
  void on_forward_begin(int unit) override;
  void on_forward_end(int unit) override;
  void on_backward_begin(int unit) override;
  void on_backward_end(int unit) override;

  // As in Optimizer, of the whole model.
  [[nodiscard]] DeviceStepResult launch_step(const StepScalars& scalars,
                                             const AfterUpdate& after_update = {});
  [[nodiscard]] Tensor num_zero_gradients();
  [[nodiscard]] std::int64_t num_updates() const;
  void set_num_updates(std::int64_t count);
  [[nodiscard]] std::vector<StateSlice> state_slices(bool owner_only);
  void refresh_parameters();
  void reset_from_parameters();
  [[nodiscard]] double parameter_norm();
  [[nodiscard]] std::int64_t state_bytes() const;

  [[nodiscard]] std::size_t num_stores() const { return grids_.size(); }
  [[nodiscard]] distributed::ParameterStore& store(std::size_t i) { return grids_[i]->store; }

 private:
  struct Grid {
    Grid(const std::vector<nn::Unit>& units, const GridPlace& place,
         const config::RunConfig& config, const PrecisionPolicy& policy, Device device)
        : store(units, *place.context, store_options(config, place), policy, device),
          optimizer(store, *place.context, config.optimizer, policy,
                    width_scaling(config.model, config.optimizer), config.model.seed) {}
    distributed::ParameterStore store;
    Optimizer optimizer;
  };
  std::vector<std::unique_ptr<Grid>> grids_;
};

}  // namespace pentatron::optimizer
