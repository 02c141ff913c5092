// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

// What a terminal can show, and text made to fit it. Pure functions but for look_at_terminal; what
// stands on a real screen is screen.h's.
namespace pentatron {

struct Terminal {
  bool present = false;      // the descriptor is a terminal
  bool interactive = false;  // one whose cursor can be moved (TERM is neither unset nor "dumb")
  bool colour = false;       // interactive, and NO_COLOR is unset or empty
  bool unicode = false;      // the locale's character set is UTF-8
  int columns = 80;
};

// Of the terminal behind a descriptor, now: its width may change at any time. Reads TERM, NO_COLOR,
// LC_ALL, LC_CTYPE and LANG.
[[nodiscard]] Terminal look_at_terminal(int descriptor);
// The same from what was read of the environment; null: unset.
struct TerminalEnvironment {
  const char* term = nullptr;
  const char* no_color = nullptr;
  const char* lc_all = nullptr;
  const char* lc_ctype = nullptr;
  const char* lang = nullptr;
};
[[nodiscard]] Terminal describe_terminal(bool present, int columns, const TerminalEnvironment& env);

enum class Tone { kPlain, kBold, kDim, kRed, kGreen, kYellow, kCyan };
// The text between the escape sequences of its tone, where the terminal has colours.
[[nodiscard]] std::string toned(std::string_view text, Tone tone, const Terminal& terminal);

// Columns that UTF-8 text takes: escape sequences and combining marks none, wide characters two.
[[nodiscard]] int display_width(std::string_view text);
// The text, cut to at most `columns`; escape sequences stay whole, and a cut one ends in a reset.
[[nodiscard]] std::string cut_to_width(std::string_view text, int columns);
// The text in lines of at most `columns`, broken at blanks (longer words stay whole); all but the
// first are indented by two.
[[nodiscard]] std::string wrap_to_width(std::string_view text, int columns);

// A piece of a line. Pieces of the highest number are left out first.
struct LinePiece {
  std::string text;
  int rank = 0;
};
// The pieces in their order, two spaces between them, as many as fit.
[[nodiscard]] std::string fit_pieces(const std::vector<LinePiece>& pieces, int columns);

// A bar of `columns`, `share` (0 to 1; others are taken as the nearer of these) of it done.
[[nodiscard]] std::string progress_bar(double share, int columns, const Terminal& terminal);
// A picture that turns with the tick.
[[nodiscard]] std::string spinner(int tick, const Terminal& terminal);

// Three digits that a person reads: 0.12, 950, 1.23k, 12.3k, 4.56M, 7.89B, 1.20T.
[[nodiscard]] std::string short_number(double value);
// 512 B, 1.23 kB, 4.56 MB, 7.89 GB (powers of 1000)
[[nodiscard]] std::string short_bytes(double bytes);
// "45 ms", "12.3 s", "3m 20s", "1h 02m", "2d 03h"
[[nodiscard]] std::string short_duration(double seconds);

}  // namespace pentatron
