// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/test_support.h"

namespace pentatron {
namespace {

TEST(BaseError, CarriesKindMessageAndPosition) {
  try {
    PENTATRON_CHECK(1 + 1 == 3, kComm, "expected {}, got {}", 3, "two");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kComm);
    EXPECT_STREQ(error.what(), "expected 3, got two");
    EXPECT_NE(error.where().find("error_log_env_test.cc:"), std::string::npos);
  }
}

TEST(BaseError, ExitCodesDifferByKind) {
  std::set<int> codes;
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(ErrorKind::kInternal); ++i) {
    codes.insert(exit_code(static_cast<ErrorKind>(i)));
    names.insert(std::string(to_string(static_cast<ErrorKind>(i))));
  }
  EXPECT_EQ(codes, (std::set<int>{2, 3, 4, 5, 6, 7, 8, 70}));
  EXPECT_EQ(names.size(), 8U);
}

TEST(BaseEnv, ReadsChecksAndNamesTheVariable) {
  ::unsetenv("PENTATRON_TEST_ENV");
  EXPECT_EQ(env_string("PENTATRON_TEST_ENV"), std::nullopt);
  EXPECT_EQ(env_int("PENTATRON_TEST_ENV"), std::nullopt);
  ::setenv("PENTATRON_TEST_ENV", "-17", 1);
  EXPECT_EQ(env_string("PENTATRON_TEST_ENV"), "-17");
  EXPECT_EQ(env_int("PENTATRON_TEST_ENV"), -17);
  EXPECT_EQ(env_int("PENTATRON_TEST_ENV", -17, -17), -17);
  expect_error(ErrorKind::kConfig, "PENTATRON_TEST_ENV is -17, expected an integer from 0 to 5",
               [] { (void)env_int("PENTATRON_TEST_ENV", 0, 5); });
  for (const char* bad : {"", "x", "3x", " 3", "1.5", "99999999999999999999"}) {
    ::setenv("PENTATRON_TEST_ENV", bad, 1);
    expect_error(ErrorKind::kConfig, "PENTATRON_TEST_ENV",
                 [] { (void)env_int("PENTATRON_TEST_ENV"); });
  }
  ::unsetenv("PENTATRON_TEST_ENV");
}

TEST(BaseLog, WritesLevelAndLabelToStandardError) {
  log::set_level(log::Level::kInfo);
  log::set_thread_label("rank 3");
  testing::internal::CaptureStderr();
  log::info("step {}", 7);
  log::debug("hidden {}", 1);
  std::thread([] { log::error("from another thread"); }).join();
  const std::string text = testing::internal::GetCapturedStderr();
  log::set_thread_label("");
  EXPECT_NE(text.find("[info] [rank 3] step 7\n"), std::string::npos) << text;
  EXPECT_NE(text.find("[error] from another thread\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("hidden"), std::string::npos) << text;
}

TEST(BaseLog, LevelComesFromTheEnvironment) {
  ::setenv("PENTATRON_LOG_LEVEL", "debug", 1);
  EXPECT_EQ(log::level_from_environment(), log::Level::kDebug);
  ::setenv("PENTATRON_LOG_LEVEL", "loud", 1);
  expect_error(ErrorKind::kConfig, "PENTATRON_LOG_LEVEL is 'loud'",
               [] { (void)log::level_from_environment(); });
  ::unsetenv("PENTATRON_LOG_LEVEL");
  EXPECT_EQ(log::level_from_environment(), log::Level::kInfo);
}

TEST(BaseLog, LinesOfSeveralThreadsStayWhole) {
  testing::internal::CaptureStdout();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        log::print_line(std::string(50, static_cast<char>('a' + t)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = testing::internal::GetCapturedStdout();
  ASSERT_EQ(text.size(), 4U * 200 * 51);
  for (std::size_t at = 0; at < text.size(); at += 51) {
    ASSERT_EQ(text.substr(at, 51), std::string(50, text[at]) + "\n");
  }
}

}  // namespace
}  // namespace pentatron
