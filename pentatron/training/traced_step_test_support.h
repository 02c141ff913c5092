// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/base/timer.h"
#include "pentatron/base/trace.h"
#include "pentatron/training/test_support.h"

// Only tests include it.
namespace pentatron::training::testing_support {

// The second step of a run, traced; the engine keeps the timers, so this outlives its steps.
struct TracedStep {
  explicit TracedStep(Engine& engine) {
    timers.set_trace(&trace);
    engine.set_timers(&timers);
    (void)train_steps(engine, 0, 1);
    trace.set_recording(true);
    (void)train_steps(engine, 1, 2);
    trace.set_recording(false);
  }

  Trace trace;
  Timers timers{0};
};

}  // namespace pentatron::training::testing_support
