// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/base/timer.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/config/pipeline_layout.h"
#include "pentatron/nn/local_stages.h"
#include "pentatron/optimizer/loss_scaler.h"
#include "pentatron/optimizer/model_optimizer.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/pipeline_parallel/executor.h"
#include "pentatron/training/dynamic_context.h"

namespace pentatron::training {

class Teacher;  // teacher.h

// What the host decides about a step before it begins.
struct StepInputs {
  double lr = 0;
  double weight_decay = 0;
  // Of word embeddings and output layer; none: lr
  std::optional<double> decoupled_lr = std::nullopt;
  // Of what --use-mup scales (optimizer/width_scaling.h); none: lr times its factor
  std::optional<double> width_lr = std::nullopt;
};

// What the host learns of a step, read from the device once, at its end.
struct StepResult {
  // What the host decides by. The loss of the model's main loss: nats a valid token of the global
  // batch, equal on every rank, 0 where no token is valid.
  double loss = 0;
  double grad_norm = 0;         // global L2, before clipping, without the loss scale
  double num_valid_tokens = 0;  // of the global batch
  bool finite = true;           // losses and gradients
  bool skipped = false;         // no update was made
  double loss_scale = 1;        // of this step
  // What is told of the step: everything in its ledger, "loss scale" as the next step has it.
  nn::StepScalars scalars = {};
};

// Of one step, or added up over several.
struct EvaluationResult {
  double loss_sum = 0;          // nats: of valid tokens, or of means (evaluates_means())
  double loss_count = 0;        // of what was summed
  double num_valid_tokens = 0;  // of all ranks

  EvaluationResult& operator+=(const EvaluationResult& other);
  [[nodiscard]] double loss() const;  // NaN where nothing was valid
};
// Conversations (--sft) with --loss-mean micro-batches: an evaluation step's loss is the mean of
// its micro-batches' means, an evaluation's that of its steps, as Megatron-LM's; otherwise each is
// a mean over valid tokens.
[[nodiscard]] bool evaluates_means(const config::RunConfig& config);

// Makes one of this rank's stages.
using StageFactory = std::function<std::unique_ptr<nn::Stage>(
    const parallel_layers::LeafContext& context, const config::StagePlan& plan)>;

// One rank's model, gradients and optimizer on a parallel context: what a step is, without data,
// files or logs. The trainer and the parity suite both stand on it. Everything lies on `device`;
// batches may come from the host.
class Engine final {
 public:
  // `config` is resolved (config::resolve, resolve_vocab). Parameters are initialised by key.
  // `make_stage`: another stage than the model registry's. Sizes that do not fit the layout:
  // kConfig.
  Engine(const config::RunConfig& config, comm::ParallelContext& context, Device device = kCpu,
         const StageFactory& make_stage = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Forward, backward and update over this data-parallel rank's micro-batches: equally many on the
  // ranks of its pipeline, of its tensor and of its context group, which all get them whole (or cut
  // already, tensor/sequence_cut.h); another data-parallel rank may have more, fewer or none. A
  // non-finite norm, or (with check_for_nan) a non-finite loss, leaves the parameters untouched:
  // skipped == true. launch_step, then read_step. read_step without a launch: kInternal; a peer's
  // failure: kComm.
  [[nodiscard]] StepResult train_step(const std::vector<Batch>& micro_batches,
                                      const StepInputs& inputs);
  [[nodiscard]] StepResult train_step(const std::vector<Batch>& micro_batches, double lr,
                                      double weight_decay) {
    return train_step(micro_batches, {.lr = lr, .weight_decay = weight_decay});
  }
  // The two halves of train_step. All of the first is work of the device: the host decides nothing
  // between the inputs and the last kernel, so with --cuda-graph-impl full_iteration it is recorded
  // and replayed (recorded_steps.h; batches that lie on the device already are not). The second
  // waits for it and reads what came of it.
  void launch_step(const std::vector<Batch>& micro_batches, const StepInputs& inputs);
  // launch_step in two: the inputs go to the device, then the work that reads them there. The
  // second alone can be recorded (tensor::StepGraph) when the batches lie on the device: replayed,
  // it reads what the inputs' and the batches' memory holds by then, and read_step reads its
  // results.
  void write_inputs(const StepInputs& inputs);
  void launch_prepared_step(const std::vector<Batch>& micro_batches);
  [[nodiscard]] StepResult read_step();
  // The step without the update: gradients stay readable (parity tests, debugging).
  [[nodiscard]] StepResult forward_backward(const std::vector<Batch>& micro_batches);
  [[nodiscard]] EvaluationResult evaluate(const std::vector<Batch>& micro_batches);

  // This rank's part of the model: one stage, or several with virtual pipeline stages.
  [[nodiscard]] nn::LocalStages& stages() { return stages_; }
  [[nodiscard]] optimizer::ModelOptimizer& optimizer() { return *optimizer_; }
  // Steps of so many shapes are recorded (recorded_steps.h).
  [[nodiscard]] std::int64_t num_recorded_shapes() const;
  // That this model learns from; null: none.
  [[nodiscard]] const Teacher* teacher() const { return teacher_.get(); }
  // Of the next step; read_step counts what came of the last.
  [[nodiscard]] optimizer::LossScaler& loss_scaler() { return loss_scaler_; }
  [[nodiscard]] const PrecisionPolicy& policy() const { return policy_; }
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] comm::ParallelContext& context() { return context_; }
  [[nodiscard]] const config::RunConfig& config() const { return config_; }
  // The groups of --hybrid-context-parallel, whose micro-batches come cut already; null: without.
  [[nodiscard]] const DynamicContext* dynamic_context() const { return dynamic_context_.get(); }

  // What a checkpoint holds of this rank: the optimizer's slices, and the stage's Buffers under the
  // kind "buffer". `owner_only`: each element once over the world.
  [[nodiscard]] std::vector<optimizer::StateSlice> state_slices(bool owner_only);

  // Whole logical tensors by part name, fp64, on the host of every rank (collective over the
  // world), frozen ones too: for tests and small models.
  [[nodiscard]] std::map<std::string, Tensor> gather_parameters();
  // After forward_backward, without the loss scale. With a sharded optimizer only the final ranges
  // are read.
  [[nodiscard]] std::map<std::string, Tensor> gather_gradients();
  // DoRA's magnitudes become the lengths of the weights' rows: what adapters start from when other
  // weights have come. Collective; the adapters' main parameters are rounded to parameters.
  void reset_magnitudes();
  // Logical elements of this rank's parameters, replicas left out / included.
  [[nodiscard]] std::int64_t num_local_parameters();
  // Times its steps, not its evaluations; null: none. The timers outlive the engine.
  void set_timers(Timers* timers);

 private:
  // Reductions and gathers of what is sharded come with every micro-batch: unequal counts over the
  // replicas are kConfig then.
  void check_equal_counts(const std::vector<Batch>& micro_batches);
  // As this rank computes on them: its context-parallel share, on its device.
  [[nodiscard]] std::vector<Batch> on_device(const std::vector<Batch>& micro_batches) const;
  // Whether this step may be recorded or replayed.
  [[nodiscard]] bool records(const std::vector<Batch>& micro_batches) const;
  void launch_recorded_step(const std::vector<Batch>& micro_batches);
  // The ledger stands before its first forward, with the counts of the global batch.
  void begin_ledger(nn::StepLedger& ledger, const std::vector<Batch>& batches);
  // Its numbers are those of all ranks.
  void reduce_ledger(nn::StepLedger& ledger);
  // On batches that are on_device().
  void launch_forward_backward(std::vector<Batch> batches);
  void launch_whole_step(const std::vector<Batch>& batches);
  [[nodiscard]] pipeline_parallel::ScheduleShape shape_of(
      const std::vector<Batch>& micro_batches) const;
  // This rank's list for so many; made once.
  [[nodiscard]] const pipeline_parallel::ActionList& training_list(
      const std::vector<Batch>& micro_batches);
  void run_schedule(const pipeline_parallel::ActionList& list,
                    const std::vector<Batch>& micro_batches,
                    const pipeline_parallel::ExecutorOptions& options);
  [[nodiscard]] std::map<std::string, Tensor> gather_parts(bool gradients);

  struct State;
  config::RunConfig config_;
  comm::ParallelContext& context_;
  std::unique_ptr<DynamicContext> dynamic_context_;
  Device device_;
  PrecisionPolicy policy_;
  std::unique_ptr<Teacher> teacher_;
  nn::LocalStages stages_;
  std::unique_ptr<State> state_;
  std::unique_ptr<optimizer::ModelOptimizer> optimizer_;
  optimizer::LossScaler loss_scaler_;
};

}  // namespace pentatron::training
