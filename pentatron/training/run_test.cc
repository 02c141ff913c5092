// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "pentatron/config/parser_test_support.h"

namespace pentatron::training {
namespace {

config::ParallelConfig parallel_of(std::vector<std::string> words) {
  return config::testing_support::config_of(std::move(words)).parallel;
}

// That the backends obey their timeout is comm_test Backend.TimeoutFromConfig.
TEST(Run, TimeoutReachesEveryBackend) {
  using std::chrono::minutes;
  const config::ParallelConfig given = parallel_of({"--distributed-timeout-minutes", "7"});
  EXPECT_EQ(threads_options(given).timeout, minutes(7));
  EXPECT_EQ(gloo_options(given).timeout, minutes(7));
  const config::ParallelConfig usual = parallel_of({});
  EXPECT_EQ(threads_options(usual).timeout, minutes(10));
  EXPECT_EQ(gloo_options(usual).timeout, minutes(10));
  EXPECT_EQ(nccl_options(given, kCpu).timeout, minutes(7));
  EXPECT_EQ(nccl_options(usual, kCpu).timeout, minutes(10));
}

TEST(Run, CheckCollectivesReachesNccl) {
  const Device gpu("cuda:0");
  EXPECT_TRUE(nccl_options(parallel_of({"--check-collectives"}), gpu).check_collectives);
  EXPECT_FALSE(nccl_options(parallel_of({}), gpu).check_collectives);
}

TEST(Run, OptionsOfTheBackends) {
  config::ParallelConfig parallel;
  parallel.rank = 3;
  parallel.world_size = 6;
  parallel.master_addr = "node7";
  parallel.master_port = 1234;
  parallel.cpu_threads_per_rank = 5;
  EXPECT_EQ(threads_options(parallel).world_size, 6);
  EXPECT_EQ(threads_options(parallel).threads_per_rank, 5);
  EXPECT_EQ(gloo_options(parallel).rank, 3);
  EXPECT_EQ(gloo_options(parallel).world_size, 6);
  EXPECT_EQ(gloo_options(parallel).master_addr, "node7");
  EXPECT_EQ(gloo_options(parallel).master_port, 1234);
}

}  // namespace
}  // namespace pentatron::training
