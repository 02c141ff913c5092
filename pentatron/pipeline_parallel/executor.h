// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/comm/group.h"
#include "pentatron/nn/stage.h"
#include "pentatron/pipeline_parallel/schedule.h"

namespace pentatron {
class Timers;
}
namespace pentatron::ops {
class UnitEventSink;
}

namespace pentatron::pipeline_parallel {

// One end of an edge between stages.
struct StageEdge {
  int peer = 0;  // rank in the pipeline group
  // Names of the bundle items that travel on it; empty: all. An output may go over several edges,
  // an input comes over one.
  std::vector<std::string> items = {};
};
// What Action::edge counts. A stage without outgoing edges returns the loss.
struct StageEdges {
  std::vector<StageEdge> previous;
  std::vector<StageEdge> next;
};

struct ExecutorOptions {
  PrecisionPolicy policy;
  Device device = kCpu;  // where activations and batches are
  std::uint64_t seed = 0;
  nn::Phase phase = nn::Phase::kTrain;
  ops::UnitEventSink* events = nullptr;
  WeightGradQueue* weight_grads = nullptr;
  // Called when the last micro-batch's backward begins (gradient reduction may start with its
  // weights_done events).
  std::function<void()> on_last_micro_batch = {};
  // This rank's place in the DAG of stages; unset: a chain in the order of the group.
  std::optional<StageEdges> edges = {};
  Timers* timers = nullptr;         // level 2: each action
  Tensor max_attention_logit = {};  // as in nn::StepContext
};

struct StepLosses {
  // Last stage: sum over micro-batches of the loss sums (scalar, loss dtype, on device). Undefined
  // on other stages.
  Tensor loss_sum;
  std::vector<Tensor> per_micro_batch;
};

// Runs one rank's action list over the micro-batches of a step. Activations travel over `pipeline`
// (group of the pp axis; size 1 allowed) and the options' edges. Keeps the gradient edge, not the
// sent tensor. `loss_seed`: scalar given to each loss's backward (1 / global valid count),
// undefined for forward only. A micro-batch's metadata is read on every rank, never sent. A list or
// a bundle that does not fit the stage: kInternal; virtual stages: kUnsupported.
[[nodiscard]] StepLosses run_schedule(const ActionList& actions, nn::Stage& stage,
                                      comm::Group& pipeline,
                                      const std::vector<BatchMeta>& micro_batches,
                                      const Tensor& loss_seed, const ExecutorOptions& options);

}  // namespace pentatron::pipeline_parallel
