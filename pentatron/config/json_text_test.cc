// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/json_text.h"

#include <gtest/gtest.h>

namespace pentatron::config {
namespace {

TEST(JsonText, AsPythonHasIt) {
  const auto json =
      nlohmann::json::parse(R"([null, true, false, 1, 0.1, 1e-05, "it's", ["x", 2]])");
  EXPECT_EQ(python_text(json), R"([None, True, False, 1, 0.1, 1e-05, "it's", ['x', 2]])");
  EXPECT_EQ(joined_text(nlohmann::json::parse(R"(["--a", "-b", 3])"), '|'), "--a|-b|3");
}

}  // namespace
}  // namespace pentatron::config
