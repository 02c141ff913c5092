// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace pentatron {
namespace {

TEST(BaseCrc32c, PublishedVectors) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
  EXPECT_EQ(crc32c(std::string(rising.rbegin(), rising.rend())), 0x113FDB5CU);
}

}  // namespace
}  // namespace pentatron
