// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/white_space.h"

#include <gtest/gtest.h>

namespace pentatron::tokenizers {
namespace {

TEST(WhiteSpace, AsPythonHasIt) {
  EXPECT_EQ(stripped("\xe3\x80\x80\t a b\xc2\xa0\x1f"), "a b");
  EXPECT_EQ(stripped(" \n"), "");
  EXPECT_EQ(last_word("one two\xe2\x80\xa9three \n"), "three");
  EXPECT_EQ(last_word("\xc3\xa9t\xc3\xa9"), "\xc3\xa9t\xc3\xa9");
  EXPECT_EQ(last_word("  "), "");
  // U+200B is no white space.
  EXPECT_EQ(stripped("\xe2\x80\x8b"), "\xe2\x80\x8b");
}

}  // namespace
}  // namespace pentatron::tokenizers
