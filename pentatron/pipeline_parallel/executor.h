// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
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

// Lane of the actions in a trace.
inline constexpr std::string_view kScheduleLane = "schedule";

// One of the rank's stages: the chunk of its number in the list.
struct StageSlot {
  nn::Stage* stage = nullptr;
  int first_unit = 0;               // index of its first unit on this rank
  nn::KvCache* kv_cache = nullptr;  // prefill and decode
};

// The same members in the same order; two, so that a rank's activations for a later chunk never
// stand behind its gradients for an earlier one.
struct PipelineGroups {
  comm::Group& activations;
  comm::Group& gradients;
};

// What a stage without outgoing edges returned for a micro-batch, without graph.
using OnOutput = std::function<void(int chunk, int micro_batch, const nn::Bundle& output)>;

struct ExecutorOptions {
  PrecisionPolicy policy;
  Device device = kCpu;  // where activations and batches are
  std::uint64_t seed = 0;
  nn::Phase phase = nn::Phase::kTrain;
  nn::StageOutput output = nn::StageOutput::kLoss;
  OnOutput on_output = {};
  // The gradient at which an output that is differentiable begins its backward
  // (nn::StepLedger::seed_of for a loss); a list with backward needs it where outputs come from.
  std::function<Tensor(const std::string& name)> seed_of = {};
  ops::UnitEventSink* events = nullptr;
  WeightGradQueue* weight_grads = nullptr;
  // Called when the backward of a chunk's last micro-batch begins: gradient reduction may start
  // with the weights_done events of its units.
  std::function<void(int chunk)> on_last_micro_batch = {};
  StageGraph graph = {};  // empty: a chain of all ranks' stages
  // Level 2: each action; with a trace also a span of kScheduleLane with chunk and micro-batch,
  // named by to_string(ActionKind).
  Timers* timers = nullptr;
  nn::StepLedger* ledger = nullptr;  // as in nn::StepContext
};

// Runs one rank's action list over the micro-batches of a step, its stages in turn. Keeps the
// gradient edge, not the sent tensor. Receives are posted ahead of their action, in the order of
// the list, so that they overlap with compute; a send holds its tensors until it has ended and is
// waited for at the end of the step. Weight actions may stand in any order. A micro-batch's
// metadata is read on every rank, never sent. What simulate() finds sound ends; a list or a bundle
// that does not fit the stages: kInternal.
void run_schedule(const ActionList& actions, std::span<const StageSlot> stages,
                  const PipelineGroups& groups, const std::vector<Batch>& micro_batches,
                  const ExecutorOptions& options);

}  // namespace pentatron::pipeline_parallel
