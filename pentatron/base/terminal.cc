// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace pentatron {
namespace {

constexpr std::string_view kReset = "\x1b[0m";

std::string_view sequence_of(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "";
    case Tone::kBold:
      return "\x1b[1m";
    case Tone::kDim:
      return "\x1b[2m";
    case Tone::kRed:
      return "\x1b[31m";
    case Tone::kGreen:
      return "\x1b[32m";
    case Tone::kYellow:
      return "\x1b[33m";
    case Tone::kCyan:
      return "\x1b[36m";
  }
  return "";
}

// What stands at the beginning of text that is not empty: an escape sequence or a code point.
struct Glyph {
  std::size_t bytes = 1;
  int columns = 1;
};

int columns_of(std::uint32_t c) {
  constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 5> kNone = {
      {{0x0, 0x1f}, {0x7f, 0x9f}, {0x300, 0x36f}, {0x200b, 0x200f}, {0xfe00, 0xfe0f}}};
  constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 9> kWide = {{{0x1100, 0x115f},
                                                                             {0x2e80, 0xa4cf},
                                                                             {0xac00, 0xd7a3},
                                                                             {0xf900, 0xfaff},
                                                                             {0xfe30, 0xfe6f},
                                                                             {0xff00, 0xff60},
                                                                             {0xffe0, 0xffe6},
                                                                             {0x1f300, 0x1faff},
                                                                             {0x20000, 0x3fffd}}};
  const auto within = [c](const auto& ranges) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [c](const auto& range) { return c >= range.first && c <= range.second; });
  };
  if (within(kNone)) return 0;
  return within(kWide) ? 2 : 1;
}

Glyph first_glyph(std::string_view text) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<std::uint8_t>(text[i]) : std::uint8_t{0};
  };
  if (byte(0) == 0x1b && byte(1) == '[') {
    std::size_t end = 2;
    while (end < text.size() && (byte(end) < 0x40 || byte(end) > 0x7e)) ++end;
    return {std::min(end + 1, text.size()), 0};
  }
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {1, columns_of(lead)};
  std::size_t length = 1;
  if ((lead & 0xe0) == 0xc0) length = 2;
  if ((lead & 0xf0) == 0xe0) length = 3;
  if ((lead & 0xf8) == 0xf0) length = 4;
  std::uint32_t value = lead & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {1, 1};
    value = (value << 6) | (byte(i) & 0x3fU);
  }
  return {length, length == 1 ? 1 : columns_of(value)};
}

bool names_utf8(const char* locale) {
  std::string text(locale);
  std::erase(text, '-');
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.find("utf8") != std::string::npos;
}

}  // namespace

Terminal describe_terminal(bool present, int columns, const TerminalEnvironment& env) {
  Terminal terminal;
  terminal.present = present;
  const std::string_view term = env.term == nullptr ? "" : env.term;
  terminal.interactive = present && !term.empty() && term != "dumb";
  terminal.colour = terminal.interactive && (env.no_color == nullptr || *env.no_color == '\0');
  // The first that is set and not empty decides, as in setlocale.
  for (const char* locale : {env.lc_all, env.lc_ctype, env.lang}) {
    if (locale == nullptr || *locale == '\0') continue;
    terminal.unicode = names_utf8(locale);
    break;
  }
  if (columns > 0) terminal.columns = columns;
  return terminal;
}

Terminal look_at_terminal(int descriptor) {
  const bool present = ::isatty(descriptor) == 1;
  winsize size{};
  const bool told = present && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0;
  return describe_terminal(present, told ? size.ws_col : 0,
                           {.term = std::getenv("TERM"),
                            .no_color = std::getenv("NO_COLOR"),
                            .lc_all = std::getenv("LC_ALL"),
                            .lc_ctype = std::getenv("LC_CTYPE"),
                            .lang = std::getenv("LANG")});
}

std::string toned(std::string_view text, Tone tone, const Terminal& terminal) {
  if (!terminal.colour || tone == Tone::kPlain || text.empty()) return std::string(text);
  return fmt::format("{}{}{}", sequence_of(tone), text, kReset);
}

int display_width(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const Glyph glyph = first_glyph(text);
    columns += glyph.columns;
    text.remove_prefix(glyph.bytes);
  }
  return columns;
}

std::string cut_to_width(std::string_view text, int columns) {
  if (display_width(text) <= columns) return std::string(text);
  std::string cut;
  bool toned = false;
  for (int left = columns; !text.empty();) {
    const Glyph glyph = first_glyph(text);
    if (glyph.columns > left) break;
    toned = toned || text.front() == '\x1b';
    left -= glyph.columns;
    cut += text.substr(0, glyph.bytes);
    text.remove_prefix(glyph.bytes);
  }
  if (toned) cut += kReset;
  return cut;
}

std::string wrap_to_width(std::string_view text, int columns) {
  std::string wrapped;
  int used = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const int width = display_width(word);
    if (wrapped.empty()) {
      used = width;
    } else if (width <= columns - used - 1) {
      wrapped += ' ';
      used += 1 + width;
    } else {
      wrapped += "\n  ";
      used = 2 + width;
    }
    wrapped += word;
  }
  return wrapped;
}

std::string fit_pieces(const std::vector<LinePiece>& pieces, int columns) {
  std::vector<const LinePiece*> kept;
  int width = -2;
  for (const LinePiece& piece : pieces) {
    if (piece.text.empty()) continue;
    kept.push_back(&piece);
    width += display_width(piece.text) + 2;
  }
  while (width > columns && kept.size() > 1) {
    const auto least = std::max_element(
        kept.begin(), kept.end(), [](const auto* a, const auto* b) { return a->rank < b->rank; });
    width -= display_width((*least)->text) + 2;
    kept.erase(least);
  }
  std::string line;
  for (const LinePiece* piece : kept) {
    if (!line.empty()) line += "  ";
    line += piece->text;
  }
  return cut_to_width(line, columns);
}

std::string progress_bar(double share, int columns, const Terminal& terminal) {
  if (columns <= 0) return "";
  const double inside = std::isnan(share) ? 0.0 : std::clamp(share, 0.0, 1.0);
  const auto done = static_cast<int>(std::floor(inside * columns));
  std::string full;
  std::string rest;
  for (int i = 0; i < columns; ++i) {
    (i < done ? full : rest) += terminal.unicode ? (i < done ? "━" : "─") : (i < done ? "#" : ".");
  }
  return toned(full, Tone::kGreen, terminal) + toned(rest, Tone::kDim, terminal);
}

std::string spinner(int tick, const Terminal& terminal) {
  constexpr std::array<std::string_view, 10> kDots = {"⠋", "⠙", "⠹", "⠸", "⠼",
                                                      "⠴", "⠦", "⠧", "⠇", "⠏"};
  constexpr std::array<std::string_view, 4> kPlain = {"|", "/", "-", "\\"};
  const auto at = static_cast<std::size_t>(std::max(0, tick));
  return toned(terminal.unicode ? kDots[at % kDots.size()] : kPlain[at % kPlain.size()],
               Tone::kCyan, terminal);
}

namespace {

// Three digits before a unit: 1.23, 12.3, 123.
std::string three_digits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  return value < 99.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

}  // namespace

std::string short_number(double value) {
  if (!std::isfinite(value)) return "-";
  if (value < 0) return "-" + short_number(-value);
  constexpr double kStep = 1000.0;
  constexpr std::array<std::string_view, 5> kUnits = {"", "k", "M", "B", "T"};
  std::size_t unit = 0;
  while (value >= kStep - 0.5 && unit + 1 < kUnits.size()) {
    value /= kStep;
    ++unit;
  }
  if (unit == 0 && value == std::floor(value)) return fmt::format("{:.0f}", value);
  return three_digits(value) + std::string(kUnits[unit]);
}

std::string short_bytes(double bytes) {
  if (!std::isfinite(bytes)) return "-";
  constexpr double kStep = 1000.0;
  constexpr std::array<std::string_view, 6> kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (bytes >= kStep - 0.5 && unit + 1 < kUnits.size()) {
    bytes /= kStep;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  return fmt::format("{} {}", three_digits(bytes), kUnits[unit]);
}

std::string short_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  constexpr double kLongest = 1e9;  // about thirty years: digits of no use beyond it
  const auto whole = static_cast<std::int64_t>(std::round(std::min(seconds, kLongest)));
  const std::int64_t minutes = whole / 60;
  const std::int64_t hours = minutes / 60;
  if (hours == 0) return fmt::format("{}m {:02}s", minutes, whole % 60);
  if (hours < 48) return fmt::format("{}h {:02}m", hours, minutes % 60);
  return fmt::format("{}d {:02}h", hours / 24, hours % 24);
}

}  // namespace pentatron
