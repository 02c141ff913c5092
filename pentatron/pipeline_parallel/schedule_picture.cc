// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/schedule_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace pentatron::pipeline_parallel {
namespace {

struct Look {
  char letter;
  std::string_view ansi;  // background and text
  std::string_view fill;  // SVG
  std::string_view text;
};

const Look& look_of(ActionKind kind) {
  static constexpr Look kForward{'F', "\033[44;97m", "#3b6fb6", "#ffffff"};
  static constexpr Look kBackward{'B', "\033[42;30m", "#7bbf6a", "#10240c"};
  static constexpr Look kWeight{'W', "\033[43;30m", "#e8b84a", "#2b1f00"};
  if (kind == ActionKind::kForward) return kForward;
  return kind == ActionKind::kBackward ? kBackward : kWeight;
}
constexpr std::string_view kPlain = "\033[0m";

std::string label_of(const PlayedSchedule& schedule, const Action& action) {
  std::string label = fmt::format("{}{}", look_of(action.kind).letter, action.micro_batch);
  constexpr int kLetters = 26;
  if (schedule.shape.num_chunks > 1) {
    label += static_cast<char>('a' + action.chunk % kLetters);
  }
  return label;
}

// The shortest work and the longest name.
struct Measures {
  double shortest = 0;
  std::size_t label = 0;
};

Measures measure(const PlayedSchedule& schedule) {
  Measures measures{.shortest = schedule.result.total_time};
  for (const auto& spans : schedule.result.spans) {
    for (const ActionSpan& span : spans) {
      measures.shortest = std::min(measures.shortest, span.end - span.begin);
      measures.label = std::max(measures.label, label_of(schedule, span.action).size());
    }
  }
  return measures;
}

// A round step (1, 2 or 5 times a power of ten) of at least `least`.
double round_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

constexpr std::size_t kMargin = 9;  // "rank 123 "

std::string time_axis(double total, double columns_a_unit, std::size_t columns) {
  constexpr double kMinColumns = 8;
  const double step = round_step(kMinColumns / columns_a_unit);
  std::string axis(columns, ' ');
  for (double time = 0; time <= total; time += step) {
    const auto at = static_cast<std::size_t>(std::lround(time * columns_a_unit));
    const std::string number = fmt::format("{:.6g}", time);
    if (at + number.size() <= columns) axis.replace(at, number.size(), number);
  }
  return fmt::format("{:<{}}{}\n", "time", kMargin, axis.substr(0, axis.find_last_not_of(' ') + 1));
}

std::string line_of(const PlayedSchedule& schedule, std::size_t rank, double columns_a_unit,
                    std::size_t columns, bool colour) {
  std::string line = fmt::format("rank {:<{}}", rank, kMargin - 5);
  const char idle = colour ? ' ' : '.';
  std::size_t at = 0;
  for (const ActionSpan& span : schedule.result.spans[rank]) {
    const auto begin = static_cast<std::size_t>(std::lround(span.begin * columns_a_unit));
    const auto end = static_cast<std::size_t>(std::lround(span.end * columns_a_unit));
    if (begin > at) line.append(begin - at, idle);
    at = std::max(at, begin);
    if (end <= at) continue;  // narrower than a column
    const std::string label = label_of(schedule, span.action).substr(0, end - at);
    const std::string cell = fmt::format("{:<{}}", label, end - at);
    line += colour ? fmt::format("{}{}{}", look_of(span.action.kind).ansi, cell, kPlain) : cell;
    at = end;
  }
  if (at < columns) line.append(columns - at, idle);
  return line + "\n";
}

}  // namespace

std::string terminal_picture(const PlayedSchedule& schedule, const PictureOptions& options) {
  const double total = schedule.result.total_time;
  const Measures measures = measure(schedule);
  const auto available = static_cast<double>(
      std::max<std::int64_t>(options.width - static_cast<std::int64_t>(kMargin), 1));
  // One column more than the longest name, so that neighbours stay apart.
  const double wanted = static_cast<double>(measures.label + 1) / measures.shortest;
  const double columns_a_unit = std::min(wanted, available / total);
  const auto columns = static_cast<std::size_t>(std::lround(total * columns_a_unit));
  std::string text = time_axis(total, columns_a_unit, columns);
  for (std::size_t r = 0; r < schedule.result.spans.size(); ++r) {
    text += line_of(schedule, r, columns_a_unit, columns, options.colour);
  }
  return text;
}

std::string svg_picture(const PlayedSchedule& schedule) {
  constexpr double kMaxWidth = 4000;
  constexpr double kRow = 28;
  constexpr double kLeft = 60;
  constexpr double kTop = 28;
  constexpr double kLetter = 7.5;
  const double total = schedule.result.total_time;
  const Measures measures = measure(schedule);
  const double wanted = (static_cast<double>(measures.label) * kLetter + 6) / measures.shortest;
  const double scale = std::min(wanted, kMaxWidth / total);
  const auto rows = static_cast<double>(schedule.result.spans.size());
  const double width = kLeft + total * scale + 10;
  const double height = kTop + rows * kRow + 24;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"monospace\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<text x=\"4\" y=\"16\">{2}</text>\n",
      width, height, headline(schedule));
  for (std::size_t r = 0; r < schedule.result.spans.size(); ++r) {
    const double y = kTop + static_cast<double>(r) * kRow;
    svg += fmt::format("<text x=\"4\" y=\"{:.1f}\">rank {}</text>\n", y + 17, r);
    for (const ActionSpan& span : schedule.result.spans[r]) {
      const Look& look = look_of(span.action.kind);
      const std::string label = label_of(schedule, span.action);
      const double x = kLeft + span.begin * scale;
      const double length = (span.end - span.begin) * scale;
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"24\" fill=\"{}\" "
          "stroke=\"#ffffff\"><title>{} {} to {}</title></rect>\n",
          x, y, length, look.fill, label, span.begin, span.end);
      if (length < static_cast<double>(label.size()) * kLetter) continue;
      svg += fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n", x + 3, y + 16,
                         look.text, label);
    }
  }
  const double step = round_step(60 / scale);
  for (double time = 0; time <= total * (1 + 1e-9); time += step) {
    svg += fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\" fill=\"#555555\">{:.6g}</text>\n",
                       kLeft + time * scale, kTop + rows * kRow + 14, time);
  }
  return svg + "</svg>\n";
}

}  // namespace pentatron::pipeline_parallel
