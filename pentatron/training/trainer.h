// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "pentatron/comm/backend.h"
#include "pentatron/config/config.h"
#include "pentatron/tensor/memory.h"

namespace pentatron::training {

class TerminalView;

struct TrainerReport {
  std::int64_t iteration = 0;
  std::int64_t consumed_samples = 0;
  double last_loss = 0;  // nats a valid token, of the last step
  // "iterations", "interval", "duration", "signal", "kill switch", "rerun"
  std::string exit_reason;
  int exit_code = 0;  // of the program; not 0 where a step's result was rejected (step_reruns.h)
};

struct TrainerHooks {
  // True once the exit signal has come to this process; polled once an iteration when
  // --exit-signal-handler is set.
  std::function<bool()> exit_signal_seen = {};
  double seconds_before_start = 0;              // already spent on initialisation
  const tensor::MemoryMeter* memory = nullptr;  // of this process, for reports
  TerminalView* view = nullptr;                 // instead of Megatron's lines on screen
};

// One rank's whole training run on the given backend: data, model, checkpoint, loop, evaluation,
// exits. `config` has been through config::resolve with the launcher's world size; rank fields are
// taken from the backend. Every rank of the world calls it with the same configuration. The model
// lies on `device`, which the backend can move tensors of. A loss or gradient that is not finite is
// a kData error (unless --no-check-for-nan-in-loss-and-grad), in a run that saves one that is run
// again first (--rerun-mode validate_results).
[[nodiscard]] TrainerReport run_training(const config::RunConfig& config, comm::Backend& backend,
                                         const TrainerHooks& hooks, Device device = kCpu);

}  // namespace pentatron::training
