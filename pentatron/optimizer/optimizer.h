// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/distributed/flat_buffer.h"

namespace pentatron::optimizer {

struct OptimizerStepResult {
  double grad_norm = 0;  // global L2 norm before clipping, every logical element once
  double clip_factor = 1;
  bool skipped = false;  // non-finite gradients
};

// One piece of optimizer state that this rank holds and a checkpoint stores: values of a part's box
// elements [box_begin, box_begin + length), row-major. kind: "main_param" (a frozen parameter's own
// values too), "exp_avg", "exp_avg_sq", "momentum".
struct StateSlice {
  const nn::ShardPart* part = nullptr;
  std::string kind;
  std::int64_t box_begin = 0;
  Tensor values;  // 1-D view of the live state
};

// AdamW or SGD over a flat buffer with main parameters in policy.main_parameter, sharded over the
// buffer's reduction_axes by element range (--use-distributed-optimizer) or whole on every rank.
// Element by element equal for every cut. A model of several buffers (dense, expert) has one
// optimizer for each, and all of them are given the model's gradient norm.
class Optimizer final {
 public:
  Optimizer(distributed::FlatBuffer& buffer, comm::ParallelContext& context,
            const config::OptimizerConfig& config, const PrecisionPolicy& policy, bool sharded);
  ~Optimizer();

  // Gradients are final (GradientReducer::finish_step). Norm, clip, update, write parameters,
  // all-gather them when sharded. lr: this step's learning rate; weight_decay likewise. grad_norm:
  // of the whole model, where this buffer is not all of it (the root of all optimizers'
  // gradient_squares()).
  [[nodiscard]] OptimizerStepResult step(double lr, double weight_decay,
                                         std::optional<double> grad_norm = std::nullopt);
  // Sum of squares of the buffer's final gradients over all ranks, each logical element once.
  [[nodiscard]] double gradient_squares();
  // Number of updates so far (Adam's t); restored by checkpoints.
  [[nodiscard]] std::int64_t num_updates() const;
  void set_num_updates(std::int64_t count);
  // Views of the live state for checkpoints, without padding; sharded: this rank's ranges only.
  // Frozen parameters come whole. `owner_only` leaves out replicas (part->replica != 0; rank > 0 in
  // the reduction group for what is not sharded).
  [[nodiscard]] std::vector<StateSlice> state_slices(bool owner_only);
  // After a load wrote into the slices: parameters := rounded main parameters (all-gathered).
  void refresh_parameters();
  // After parameters were loaded without optimizer state (--finetune, --no-load-optim): main
  // parameters := parameters, moments zero, no updates.
  void reset_from_parameters();
  // L2 norm of all (main) parameters of the buffer, frozen ones too, each logical element once.
  [[nodiscard]] double parameter_norm();
  // Bytes of main parameters and moments that this rank allocated for itself.
  [[nodiscard]] std::int64_t state_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pentatron::optimizer
