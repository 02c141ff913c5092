// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "pentatron/comm/group.h"
#include "pentatron/nn/stage.h"
#include "pentatron/pipeline_parallel/schedule.h"

namespace pentatron::ops {
class LayerEventSink;
}

namespace pentatron::pipeline_parallel {

struct ExecutorOptions {
  PrecisionPolicy policy;
  std::uint64_t seed = 0;
  nn::Phase phase = nn::Phase::kTrain;
  ops::LayerEventSink* layer_events = nullptr;
  WeightGradQueue* weight_grads = nullptr;
  // Called when the last micro-batch's backward begins (gradient reduction may start with its
  // weights_done events).
  std::function<void()> on_last_micro_batch = {};
};

struct StepLosses {
  // Last stage: sum over micro-batches of the loss sums (scalar, loss dtype, on device). Undefined
  // on other stages.
  Tensor loss_sum;
  std::vector<Tensor> per_micro_batch;
};

// Runs one rank's action list over the micro-batches of a step. Activations travel over `pipeline`
// (group of the pp axis; size 1 allowed). Keeps the gradient edge, not the sent tensor.
// `loss_seed`: scalar given to each loss's backward (1 / global valid count), undefined for forward
// only. A micro-batch's metadata is read on every rank, never sent.
[[nodiscard]] StepLosses run_schedule(const ActionList& actions, nn::Stage& stage,
                                      comm::Group& pipeline,
                                      const std::vector<BatchMeta>& micro_batches,
                                      const Tensor& loss_seed, const ExecutorOptions& options);

}  // namespace pentatron::pipeline_parallel
