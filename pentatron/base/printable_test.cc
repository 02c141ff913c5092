// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/printable.h"

#include <gtest/gtest.h>

namespace pentatron {
namespace {

TEST(Printable, KeepsTextAndEscapesTheRest) {
  EXPECT_EQ(printable("plain 'text' \"\\\" grün 漢 😀"), "plain 'text' \"\\\" grün 漢 😀");
  EXPECT_EQ(printable("\x1b[31mred\n\t\r\x7f"), "\\x1b[31mred\\x0a\\x09\\x0d\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m")
      << "a terminal's one-byte escape";
  // Overlong forms, surrogates, cut and lone bytes.
  EXPECT_EQ(printable("\xc0\xaf\xed\xa0\x80\xe6\xbc\xff"),
            "\\xc0\\xaf\\xed\\xa0\\x80\\xe6\\xbc\\xff");
}

TEST(Printable, IsCut) {
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
}

}  // namespace
}  // namespace pentatron
