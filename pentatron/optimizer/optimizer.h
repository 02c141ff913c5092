// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/base/timer.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/distributed/parameter_store.h"
#include "pentatron/optimizer/width_scaling.h"

namespace pentatron::optimizer {

// What changes from step to step: fp64 scalars on the parameters' device, so that a step may be
// enqueued (or captured) before the host knows them.
struct StepScalars {
  Tensor lr;
  Tensor weight_decay;
  Tensor decoupled_lr = {};  // of word embeddings and output layer; undefined: lr
  Tensor width_lr = {};      // of what the WidthScaling names; undefined: lr
  Tensor loss_scale = {};    // the gradients are this many times too large; undefined: 1
  Tensor skip = {};          // not 0: this step must change nothing; undefined: 0
  // Of the whole model, where this store is not all of it (the root of the sum of all optimizers'
  // gradient_squares(), divided by the loss scale); undefined: this store's.
  Tensor grad_norm = {};
};
// What came of it, on the device too.
struct DeviceStepResult {
  Tensor grad_norm;    // global L2 norm before clipping, every logical element once
  Tensor clip_factor;  // 1 where the norm is within bounds
  Tensor skipped;      // 1: the norm is not finite or the caller said so; nothing was changed
};
struct OptimizerStepResult {
  double grad_norm = 0;
  double clip_factor = 1;
  bool skipped = false;
};

// What else changes main parameters in a step: called after the update, before they are published,
// with the store's pieces and DeviceStepResult::skipped, by which a step that must change nothing
// is left out on the device.
using AfterUpdate =
    std::function<void(std::vector<distributed::Piece>& pieces, const Tensor& skipped)>;

// One piece of optimizer state that this rank holds and a checkpoint stores: values of a part's box
// elements [box_begin, box_begin + length), row-major. kind: "main_param" (a frozen parameter's own
// values too), "exp_avg", "exp_avg_sq", "momentum", "soap_..." (rules/soap.h).
struct StateSlice {
  const nn::ShardPart* part = nullptr;
  std::string kind;
  std::int64_t box_begin = 0;
  Tensor values;  // 1-D view of the live state, on its device
};

// The update of a store's pieces by the rules of --optimizer: AdamW, SGD, Lion, or Muon or SOAP
// with AdamW for what is no matrix. Moments in policy.state, or as --use-precision-aware-optimizer
// has them, lie beside the main parameters, on their device. AdamW, SGD and Lion are equal element
// by element for every cut. A model of several stores (dense, expert) has one optimizer for each,
// and all of them are given the model's gradient norm. An unknown optimizer: kConfig; a 16-bit
// state of another one than adam: kUnsupported; Muon or SOAP over a store that is cut by elements:
// kInternal.
class Optimizer final {
 public:
  // Both outlive the optimizer. `seed`: of stochastic rounding.
  Optimizer(distributed::ParameterStore& store, comm::ParallelContext& context,
            const config::OptimizerConfig& config, const PrecisionPolicy& policy,
            const WidthScaling& scaling = {}, std::uint64_t seed = 0);
  ~Optimizer();

  // Gradients are final (ParameterStore::finish_step). Norm, clip, update, publish. The host reads
  // nothing (unless state lies on the host): a step that must not be made is left out by a flag in
  // device memory.
  [[nodiscard]] DeviceStepResult launch_step(const StepScalars& scalars,
                                             const AfterUpdate& after_update = {});
  // The same with values of the host, and read back.
  [[nodiscard]] OptimizerStepResult step(double lr, double weight_decay,
                                         std::optional<double> grad_norm = std::nullopt);
  // Sum of squares of the store's final gradients (as they lie there, scaled by a loss scale) over
  // all ranks, each logical element once: an fp64 scalar on the device.
  [[nodiscard]] Tensor gradient_squares();
  // Elements of those gradients that are exactly zero, likewise.
  [[nodiscard]] Tensor num_zero_gradients();
  // Number of updates so far (Adam's t), read from the device; restored by checkpoints.
  [[nodiscard]] std::int64_t num_updates() const;
  void set_num_updates(std::int64_t count);
  // Views of the live state for checkpoints, without padding; sharded: this rank's ranges only.
  // Frozen parameters come whole. `owner_only` leaves out what others hold too: replicas
  // (part->replica != 0) and pieces that ParameterStore::owns_pieces() disowns.
  [[nodiscard]] std::vector<StateSlice> state_slices(bool owner_only);
  // After a load wrote into the slices: parameters := rounded main parameters (all-gathered).
  void refresh_parameters();
  // After parameters were loaded without optimizer state (--finetune, --no-load-optim): main
  // parameters := parameters, moments zero, no updates.
  void reset_from_parameters();
  void set_timers(Timers* timers);  // level 1: parts of a step; null: none
  // L2 norm of all (main) parameters of the store, frozen ones too, each logical element once.
  [[nodiscard]] double parameter_norm();
  // Bytes of main parameters and moments that this rank allocated for itself.
  [[nodiscard]] std::int64_t state_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pentatron::optimizer
