// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/nn/stage.h"
#include "pentatron/optimizer/optimizer.h"
#include "pentatron/pipeline_parallel/executor.h"

namespace pentatron::training {

struct StepResult {
  double loss = 0;              // sum over valid tokens / global valid count, equal on every rank
  double grad_norm = 0;         // before clipping
  double num_valid_tokens = 0;  // of the global batch
  bool finite = true;           // loss and gradients
  bool skipped = false;         // no update was made
  std::vector<Tensor> micro_losses;  // last stage: loss sum of each of this rank's micro-batches
};

struct EvaluationResult {
  double loss_sum = 0;  // over all ranks
  double num_valid_tokens = 0;
};

// One rank's model, gradients and optimizer on a parallel context: what a step is, without data,
// files or logs. The trainer and the parity suite both stand on it.
class Engine final {
 public:
  // `config` is resolved (config::resolve, resolve_vocab). Parameters are initialised by key.
  Engine(const config::RunConfig& config, comm::ParallelContext& context);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Forward, backward and update over this data-parallel rank's micro-batches; every rank of the
  // data-parallel group has equally many. With check_finite (config), a non-finite loss or norm
  // leaves the parameters untouched: finite == false.
  [[nodiscard]] StepResult train_step(const std::vector<BatchMeta>& micro_batches, double lr,
                                      double weight_decay);
  // The same without the update: gradients stay readable (parity tests, debugging).
  [[nodiscard]] StepResult forward_backward(const std::vector<BatchMeta>& micro_batches);
  [[nodiscard]] EvaluationResult evaluate(const std::vector<BatchMeta>& micro_batches);

  [[nodiscard]] nn::Stage& stage() { return *stage_; }
  [[nodiscard]] optimizer::Optimizer& optimizer() { return *optimizer_; }
  [[nodiscard]] const PrecisionPolicy& policy() const { return policy_; }
  [[nodiscard]] comm::ParallelContext& context() { return context_; }
  [[nodiscard]] const config::RunConfig& config() const { return config_; }

  // Whole logical tensors by part name, fp64, on every rank (collective over the world): for tests
  // and small models.
  [[nodiscard]] std::map<std::string, Tensor> gather_parameters();
  // After forward_backward. With a sharded optimizer only the final ranges are read.
  [[nodiscard]] std::map<std::string, Tensor> gather_gradients();
  // Logical elements of this rank's parameters, replicas left out / included.
  [[nodiscard]] std::int64_t num_local_parameters();
  // 1F1B by default; "split_weight" postpones weight gradients.
  void set_schedule(std::string name);

 private:
  [[nodiscard]] double global_valid_count(const std::vector<BatchMeta>& micro_batches);
  [[nodiscard]] std::map<std::string, Tensor> gather_parts(bool gradients);

  struct State;
  config::RunConfig config_;
  comm::ParallelContext& context_;
  PrecisionPolicy policy_;
  std::unique_ptr<nn::Stage> stage_;
  std::unique_ptr<State> state_;
  std::unique_ptr<optimizer::Optimizer> optimizer_;
};

}  // namespace pentatron::training
