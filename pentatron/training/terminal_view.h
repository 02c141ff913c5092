// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "pentatron/base/screen.h"
#include "pentatron/base/timer.h"
#include "pentatron/config/config.h"
#include "pentatron/training/terminal_rows.h"

namespace pentatron::training {

// Whether a run tells a person at a terminal instead of printing Megatron's lines: --log-format,
// and with "auto" whether standard output is a terminal.
[[nodiscard]] bool wants_terminal_view(const config::LoggingConfig& logging);

// A run on the terminal (or, with --log-format terminal, its lines in a file). Only the rank that
// speaks makes rows; Megatron's lines of all ranks of the process are off while it lives, and
// below warnings the log of others. Safe from several threads. With --quiet only final_row()s and
// what the log warns of are printed.
class TerminalView final {
 public:
  // `speaks`: this process has the run's last rank. `config` outlives the view.
  TerminalView(const config::RunConfig& config, bool speaks);
  ~TerminalView();
  TerminalView(const TerminalView&) = delete;
  TerminalView& operator=(const TerminalView&) = delete;

  // A line that stays, wrapped by the terminal where it is too long.
  void note(std::string_view text);
  void start(std::string_view place);
  // What the run does now, with a spinner until the next call; empty: the training loop.
  void phase(std::string name);
  // How much of the phase is done, 0 to 1.
  void phase_share(double share);

  // After each step. `tokens`, `seconds`: of this step.
  void step(const RowTitle& at, double loss, double tokens, double seconds);
  void row(const RowTitle& at, const nn::StepScalars& scalars, double tokens_per_second,
           bool final_one);
  void evaluation(const RowTitle& at, std::string_view what, double loss, std::string_view remark,
                  bool final_one);
  void event(const RowTitle& at, std::string_view text, Tone tone = Tone::kPlain);
  void summary(const RunSummary& summary);

 private:
  void print(std::string_view line, bool final_one = false);
  [[nodiscard]] Terminal terminal() const;

  const config::RunConfig& config_;
  bool speaks_;
  std::mutex mutex_;  // of what follows
  LiveState state_;
  double seconds_per_step_ = 0;  // newer steps count more
  double tokens_per_step_ = 0;
  Timer in_phase_;
  Timer since_step_;
  std::unique_ptr<screen::LiveLine> line_;  // last: its thread reads all above
};

}  // namespace pentatron::training
