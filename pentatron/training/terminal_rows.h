// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "pentatron/base/terminal.h"
#include "pentatron/config/config.h"
#include "pentatron/nn/step_scalars.h"

// What a run looks like on a terminal: one compact line an interval, a bar below. Pure functions of
// numbers and of what the terminal can show; no line is wider than it.
namespace pentatron::training {

// Model, run and layout in a few lines. `place`: "cpu", "cuda:0 (name, 80 GiB)".
[[nodiscard]] std::string start_lines(const config::RunConfig& config, std::string_view place,
                                      const Terminal& terminal);

// The line of an iteration: what changes most first, and what does not fit is left out. `scalars`:
// those of Megatron's line. `tokens_per_second`: of the line's window.
struct RowTitle {
  std::int64_t iteration = 0;
  std::int64_t train_iters = 0;
};
[[nodiscard]] std::string iteration_row(const RowTitle& title, const nn::StepScalars& scalars,
                                        double tokens_per_second, const Terminal& terminal);

// "100/1000  validation  loss 4.0712  ppl 58.6"; `what`: "validation", "test", "validation web".
[[nodiscard]] std::string evaluation_row(const RowTitle& title, std::string_view what, double loss,
                                         std::string_view remark, const Terminal& terminal);

// A line beside an iteration: "100/1000  saved ckpt/iter_0000100".
[[nodiscard]] std::string event_row(const RowTitle& title, std::string_view text, Tone tone,
                                    const Terminal& terminal);

// The line below: a phase with a spinner, or the bar of the training loop.
struct LiveState {
  std::string phase;  // empty: training
  double phase_seconds = 0;
  double phase_share = -1;  // below 0: not known
  RowTitle at = {};
  double loss = std::nan("");
  double tokens_per_second = 0;
  double seconds_left = -1;       // of the training loop; below 0: not known
  double seconds_since_step = 0;  // shown where a step takes long
};
[[nodiscard]] std::string live_line(const LiveState& state, const Terminal& terminal, int tick);

// The last line of a run.
struct RunSummary {
  std::int64_t iterations = 0;  // of this process
  double seconds = 0;
  double tokens = 0;
  std::string checkpoint;  // folder; empty: none was saved
};
[[nodiscard]] std::string summary_line(const RunSummary& summary, const Terminal& terminal);

}  // namespace pentatron::training
