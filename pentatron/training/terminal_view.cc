// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/terminal_view.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "pentatron/base/env.h"
#include "pentatron/base/log.h"

namespace pentatron::training {

bool wants_terminal_view(const config::LoggingConfig& logging) {
  if (logging.log_format == "auto") return look_at_terminal(STDOUT_FILENO).present;
  return logging.log_format == "terminal";
}

TerminalView::TerminalView(const config::RunConfig& config, bool speaks)
    : config_(config), speaks_(speaks) {
  screen::set_terse(true);
  const bool silent = !speaks || config.logging.quiet;
  if (silent && !env_string("PENTATRON_LOG_LEVEL")) log::set_level(log::Level::kWarn);
  if (silent) return;
  state_.phase = "starting";
  line_ = std::make_unique<screen::LiveLine>(STDOUT_FILENO, [this](const Terminal& now, int tick) {
    const std::lock_guard<std::mutex> lock(mutex_);
    LiveState state = state_;
    state.phase_seconds = in_phase_.seconds();
    state.seconds_since_step = since_step_.seconds();
    return live_line(state, now, tick);
  });
}

TerminalView::~TerminalView() {
  line_.reset();
  screen::set_terse(false);
}

Terminal TerminalView::terminal() const {
  Terminal now = look_at_terminal(STDOUT_FILENO);
  // Lines in a file are cut for nobody.
  if (!now.present) now.columns = std::numeric_limits<int>::max();
  return now;
}

void TerminalView::print(std::string_view line, bool final_one) {
  if (speaks_ && (final_one || !config_.logging.quiet)) screen::print(line);
}

void TerminalView::note(std::string_view text) { print(wrap_to_width(text, terminal().columns)); }

void TerminalView::start(std::string_view place) { print(start_lines(config_, place, terminal())); }

void TerminalView::phase(std::string name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_.phase = std::move(name);
  state_.phase_share = -1;
  in_phase_.restart();
  since_step_.restart();
}

void TerminalView::phase_share(double share) {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_.phase_share = share;
}

void TerminalView::step(const RowTitle& at, double loss, double tokens, double seconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A mean over some seconds, in which each of many short steps has little weight.
  constexpr double kMemorySeconds = 5.0;
  const double weight =
      seconds_per_step_ == 0 ? 1.0 : std::clamp(seconds / kMemorySeconds, 0.01, 0.5);
  seconds_per_step_ += weight * (seconds - seconds_per_step_);
  tokens_per_step_ += weight * (tokens - tokens_per_step_);
  state_.at = at;
  state_.loss = loss;
  state_.tokens_per_second = tokens_per_step_ / std::max(1e-9, seconds_per_step_);
  state_.seconds_left = seconds_per_step_ * static_cast<double>(at.train_iters - at.iteration);
  since_step_.restart();
}

void TerminalView::row(const RowTitle& at, const nn::StepScalars& scalars, double tokens_per_second,
                       bool final_one) {
  print(iteration_row(at, scalars, tokens_per_second, terminal()), final_one);
}

void TerminalView::evaluation(const RowTitle& at, std::string_view what, double loss,
                              std::string_view remark, bool final_one) {
  print(evaluation_row(at, what, loss, remark, terminal()), final_one);
}

void TerminalView::event(const RowTitle& at, std::string_view text, Tone tone) {
  print(event_row(at, text, tone, terminal()));
}

void TerminalView::summary(const RunSummary& summary) {
  line_.reset();  // nothing more is under way
  print(summary_line(summary, terminal()));
}

}  // namespace pentatron::training
