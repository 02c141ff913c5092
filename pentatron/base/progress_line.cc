// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "pentatron/base/log.h"

namespace pentatron {

ProgressLine::ProgressLine(Options options) : options_(std::move(options)) {
  if (!look_at_terminal(STDERR_FILENO).interactive) return;
  line_ =
      std::make_unique<screen::LiveLine>(STDERR_FILENO, [this](const Terminal& terminal, int tick) {
        return text(terminal, tick, timer_.seconds());
      });
}

void ProgressLine::expect(std::int64_t amount) {
  const std::lock_guard<std::mutex> lock(mutex_);
  expected_ += amount;
}

void ProgressLine::add(std::int64_t amount) {
  std::string line;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ += amount;
    if (line_ || options_.line_seconds <= 0) return;
    if (timer_.seconds() - told_ < options_.line_seconds) return;
    told_ = timer_.seconds();
    line = fmt::format("{} {}{}", options_.what, amount_text(done_),
                       expected_ > 0 ? " of " + amount_text(expected_) : "");
  }
  log::info("{}", line);
}

void ProgressLine::set_share(double share) {
  const std::lock_guard<std::mutex> lock(mutex_);
  share_ = share;
}

void ProgressLine::note(std::string text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  note_ = std::move(text);
}

std::string ProgressLine::amount_text(std::int64_t amount) const {
  if (options_.unit == "bytes") return short_bytes(static_cast<double>(amount));
  return fmt::format("{} {}", amount, options_.unit);
}

std::string ProgressLine::text(const Terminal& terminal, int tick, double seconds) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  double share = share_;
  if (share < 0 && expected_ > 0) {
    share = static_cast<double>(done_) / static_cast<double>(expected_);
  }
  std::vector<LinePiece> pieces;
  if (share < 0) {
    pieces.push_back({spinner(tick, terminal), 0});
  } else {
    const int columns = std::clamp(terminal.columns / 4, 8, 40);
    pieces.push_back({fmt::format("{:3.0f} %", 100 * std::min(share, 1.0)), 1});
    pieces.push_back({progress_bar(share, columns, terminal), 3});
  }
  pieces.push_back({fmt::format("{} {}", options_.what, amount_text(done_)), 0});
  if (!note_.empty()) pieces.push_back({note_, 4});
  constexpr double kShortest = 1.0;  // seconds until a rate means something
  if (share > 0 && seconds >= kShortest) {
    pieces.push_back(
        {fmt::format("{} left", short_duration(seconds * (1 - std::min(share, 1.0)) / share)), 2});
  }
  return fit_pieces(pieces, terminal.columns - 1);
}

StatusText::StatusText() {
  if (!look_at_terminal(STDERR_FILENO).interactive) return;
  line_ =
      std::make_unique<screen::LiveLine>(STDERR_FILENO, [this](const Terminal& terminal, int tick) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return fmt::format("{} {}", spinner(tick, terminal), text_);
      });
}

void StatusText::show(const std::string& text) {
  if (!line_) return log::info("{}", text);
  const std::lock_guard<std::mutex> lock(mutex_);
  text_ = text;
}

}  // namespace pentatron
