// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/terminal.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pentatron {
namespace {

TEST(Terminal, LinesBreakAtBlanks) {
  EXPECT_EQ(wrap_to_width("one two three four", 9), "one two\n  three\n  four");
  EXPECT_EQ(wrap_to_width("one two three four", 18), "one two three four");
  EXPECT_EQ(wrap_to_width("one two three four", 17), "one two three\n  four");
  EXPECT_EQ(wrap_to_width("a/path/that/does/not/fit and", 10), "a/path/that/does/not/fit\n  and");
  EXPECT_EQ(wrap_to_width("", 10), "");
}

TEST(Terminal, WhatTheEnvironmentSays) {
  const Terminal full =
      describe_terminal(true, 120, {.term = "xterm-256color", .lang = "en_GB.UTF-8"});
  EXPECT_TRUE(full.interactive && full.colour && full.unicode);
  EXPECT_EQ(full.columns, 120);
  const Terminal plain = describe_terminal(true, 80, {.term = "xterm", .no_color = "1"});
  EXPECT_TRUE(plain.interactive);
  EXPECT_FALSE(plain.colour);
  EXPECT_FALSE(plain.unicode);
  // An empty NO_COLOR asks for nothing.
  EXPECT_TRUE(describe_terminal(true, 80, {.term = "xterm", .no_color = ""}).colour);
  for (const char* term : {static_cast<const char*>(nullptr), "", "dumb"}) {
    const Terminal dumb = describe_terminal(true, 0, {.term = term});
    EXPECT_TRUE(dumb.present);
    EXPECT_FALSE(dumb.interactive || dumb.colour);
    EXPECT_EQ(dumb.columns, 80);  // not told
  }
  EXPECT_FALSE(describe_terminal(false, 0, {.term = "xterm"}).interactive);
  // LC_ALL goes before LC_CTYPE, that before LANG.
  EXPECT_FALSE(
      describe_terminal(true, 80, {.term = "x", .lc_all = "C", .lang = "de_DE.utf8"}).unicode);
  EXPECT_TRUE(
      describe_terminal(true, 80, {.term = "x", .lc_all = "", .lc_ctype = "C.utf8"}).unicode);
}

TEST(Terminal, WidthAndCuts) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("\x1b[31mabc\x1b[0m"), 3);
  EXPECT_EQ(display_width("日本"), 4);
  EXPECT_EQ(display_width("e\xcc\x81"), 1);  // a combining accent
  EXPECT_EQ(display_width("\xff\xfe"), 2);   // no UTF-8: a column each
  EXPECT_EQ(cut_to_width("abcdef", 4), "abcd");
  EXPECT_EQ(cut_to_width("abcdef", 6), "abcdef");
  EXPECT_EQ(cut_to_width("日本語", 5), "日本");  // no half of a wide character
  EXPECT_EQ(cut_to_width("\x1b[31mabcdef\x1b[0m", 3), "\x1b[31mabc\x1b[0m");
}

TEST(Terminal, PiecesAreLeftOutByRank) {
  const std::vector<LinePiece> pieces{{"loss 4.07", 0}, {"lr 3e-4", 3}, {"1.2k tok/s", 1}};
  EXPECT_EQ(fit_pieces(pieces, 80), "loss 4.07  lr 3e-4  1.2k tok/s");
  EXPECT_EQ(fit_pieces(pieces, 25), "loss 4.07  1.2k tok/s");
  EXPECT_EQ(fit_pieces(pieces, 12), "loss 4.07");
  EXPECT_EQ(fit_pieces(pieces, 4), "loss");
  EXPECT_EQ(fit_pieces({{"a", 0}, {"", 0}, {"b", 0}}, 9), "a  b");
}

TEST(Terminal, Bars) {
  const Terminal plain;
  EXPECT_EQ(progress_bar(0.5, 8, plain), "####....");
  EXPECT_EQ(progress_bar(0.0, 4, plain), "....");
  EXPECT_EQ(progress_bar(7.0, 4, plain), "####");
  EXPECT_EQ(progress_bar(std::nan(""), 4, plain), "....");
  const Terminal rich{.present = true, .interactive = true, .colour = true, .unicode = true};
  EXPECT_EQ(display_width(progress_bar(0.3, 20, rich)), 20);
  EXPECT_EQ(display_width(spinner(7, rich)), 1);
  EXPECT_NE(spinner(0, plain), spinner(1, plain));
}

TEST(Terminal, NumbersForPeople) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.125), "0.12");
  EXPECT_EQ(short_number(950), "950");
  EXPECT_EQ(short_number(999.7), "1.00k");
  EXPECT_EQ(short_number(12345), "12.3k");
  EXPECT_EQ(short_number(124439808), "124M");
  EXPECT_EQ(short_number(-2.5e9), "-2.50B");
  EXPECT_EQ(short_number(std::nan("")), "-");
  EXPECT_EQ(short_bytes(512), "512 B");
  EXPECT_EQ(short_bytes(1.5e9), "1.50 GB");
  EXPECT_EQ(short_duration(0.0451), "45 ms");
  EXPECT_EQ(short_duration(12.34), "12.3 s");
  EXPECT_EQ(short_duration(59.99), "1m 00s");
  EXPECT_EQ(short_duration(3723), "1h 02m");
  EXPECT_EQ(short_duration(200000), "2d 07h");
  EXPECT_EQ(short_duration(INFINITY), "-");
}

}  // namespace
}  // namespace pentatron
