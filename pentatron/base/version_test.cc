// SPDX-License-Identifier: Apache-2.0
#include "pentatron/version.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace pentatron {
namespace {

TEST(Version, TextAndNumberAreTheHeaders) {
  EXPECT_EQ(version(), fmt::format("{}.{}.{}", PENTATRON_VERSION_MAJOR, PENTATRON_VERSION_MINOR,
                                   PENTATRON_VERSION_PATCH));
  EXPECT_EQ(version_number(), PENTATRON_VERSION_NUMBER);
  static_assert(PENTATRON_VERSION_MINOR < 1000 && PENTATRON_VERSION_PATCH < 1000);
}

}  // namespace
}  // namespace pentatron
