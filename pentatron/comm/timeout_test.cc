// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/comm/backend.h"
#include "pentatron/config/parser_test_support.h"

namespace pentatron::comm {
namespace {

std::int64_t timeout_option(std::vector<std::string> words) {
  const config::RunConfig config = config::testing_support::config_of(std::move(words));
  return config.parallel.distributed_timeout_minutes;
}

// Rank 1 comes 300 ms late to a barrier. Returns the error's message, or nothing.
std::string late_barrier(std::chrono::milliseconds timeout) {
  try {
    run_threads({.world_size = 2, .threads_per_rank = 1, .timeout = timeout}, [](Backend& backend) {
      const auto group = backend.make_group({0, 1}, "all");
      if (backend.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      }
      group->barrier();
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kComm);
    return error.what();
  }
  return "";
}

// Minutes are too long to wait for: here one minute of the option lasts 20 ms.
TEST(Backend, TimeoutFromConfig) {
  constexpr std::chrono::milliseconds kMinute(20);
  const std::string message =
      late_barrier(timeout_option({"--distributed-timeout-minutes", "3"}) * kMinute);
  EXPECT_NE(message.find("no answer within 60 ms"), std::string::npos) << message;
  EXPECT_NE(message.find("--distributed-timeout-minutes"), std::string::npos) << message;
  // 60 s for a peer that is 300 ms late.
  EXPECT_EQ(late_barrier(timeout_option({"--distributed-timeout-minutes", "3000"}) * kMinute), "");
  EXPECT_EQ(timeout_option({}), 10);
}

}  // namespace
}  // namespace pentatron::comm
