// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/layer_pattern.h"

#include <gtest/gtest.h>

#include <string>

#include "pentatron/base/test_support.h"

namespace pentatron::config {
namespace {

std::string shown(std::string_view text, std::int64_t num_layers) {
  std::string flags;
  for (const bool flag : layer_pattern(text, num_layers, "--no-rope-freq"))
    flags += flag ? '1' : '0';
  return flags;
}

TEST(LayerPattern, ReadsNumbersAndLists) {
  EXPECT_EQ(shown("", 4), "0000");
  EXPECT_EQ(shown("1", 3), "111");
  EXPECT_EQ(shown("4", 8), "00010001");
  EXPECT_EQ(shown("([0]*3+[1]*1)*3", 12), "000100010001");
  EXPECT_EQ(shown("[1]+[0]*23", 24), "1" + std::string(23, '0'));
  EXPECT_EQ(shown("[0, 1, 1]*2 + [0]", 7), "0110110");
  EXPECT_EQ(shown("(([1])*2)*2+[]", 4), "1111");
  EXPECT_EQ(shown("[1]*0+[0]*2", 2), "00");
}

TEST(LayerPattern, RefusesWhatIsNoPatternOfTheLayers) {
  for (const char* text :
       {"0", "-1", "x", "[2]*4", "[0,1", "[0]*4)", "([0]*4", "[0]*3", "[0]*5", "[0]*", "[,1]*4",
        "[0]*99999999999999999999", "[0]**4", "[0][1][0][1]", "4x", "[0]*-4"}) {
    expect_error(ErrorKind::kConfig, "--no-rope-freq", [&] { (void)shown(text, 4); });
  }
  expect_error(ErrorKind::kConfig, "--num-layers 4 does not divide by",
               [] { (void)shown("3", 4); });
  // Neither deep brackets nor large factors cost more than the model has layers.
  const std::string deep(100'000, '(');
  expect_error(ErrorKind::kConfig, "expected", [&] { (void)shown(deep + "[0]", 4); });
  expect_error(ErrorKind::kConfig, "expected", [] { (void)shown("[0]*1000000000*1000000000", 4); });
}

}  // namespace
}  // namespace pentatron::config
