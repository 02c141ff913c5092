// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/debug_check.h"

#include <gtest/gtest.h>

#include "pentatron/base/test_support.h"

namespace pentatron {
namespace {

TEST(DebugCheck, IsEvaluatedInDebugBuildsAlone) {
  int asked = 0;
  const auto check = [&] { PENTATRON_DEBUG_CHECK(++asked == 0, "asked {} times", asked); };
  if constexpr (PENTATRON_DEBUG_CHECKS) {
    expect_error(ErrorKind::kInternal, "asked 1 times", check);
    EXPECT_EQ(asked, 1);
  } else {
    check();
    EXPECT_EQ(asked, 0);
  }
}

}  // namespace
}  // namespace pentatron
