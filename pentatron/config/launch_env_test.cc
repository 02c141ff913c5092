// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/launch_env.h"

#include <gtest/gtest.h>

#include "pentatron/config/parser_test_support.h"

namespace pentatron::config {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

// What parse() makes of a launcher's variables.
void expect_place(Environment environment, std::int64_t rank, std::int64_t world_size,
                  std::int64_t local_rank, const std::string& address, std::int64_t port = 29500) {
  ParseRequest from;
  from.environment = std::move(environment);
  const ParallelConfig parallel = parse(from).config.parallel;
  EXPECT_EQ(parallel.rank, rank);
  EXPECT_EQ(parallel.world_size, world_size);
  EXPECT_EQ(parallel.local_rank, local_rank);
  EXPECT_EQ(parallel.master_addr, address);
  EXPECT_EQ(parallel.master_port, port);
}

TEST(LaunchEnv, ReadsEveryLauncher) {
  expect_place({{"RANK", "3"},
                {"WORLD_SIZE", "8"},
                {"LOCAL_RANK", "1"},
                {"MASTER_ADDR", "host"},
                {"MASTER_PORT", "1234"},
                {"SLURM_PROCID", "0"},
                {"SLURM_NTASKS", "1"}},
               3, 8, 1, "host", 1234);
  expect_place({{"OMPI_COMM_WORLD_RANK", "1"},
                {"OMPI_COMM_WORLD_SIZE", "2"},
                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
               1, 2, 1, "127.0.0.1");
  expect_place({{"SLURM_PROCID", "5"},
                {"SLURM_NTASKS", "6"},
                {"SLURM_LOCALID", "2"},
                {"SLURM_NNODES", "2"},
                {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}},
               5, 6, 2, "10.0.0.1");
}

// srun may be called on a login node, where no rank runs.
TEST(LaunchEnv, SlurmsRanksMeetOnTheFirstNodeOfTheStep) {
  const auto address = [](const char* nodes, const char* count = "2") {
    const Environment environment{
        {"SLURM_PROCID", "1"},          {"SLURM_NTASKS", "2"},
        {"SLURM_LOCALID", "0"},         {"SLURM_NNODES", count},
        {"SLURM_STEP_NODELIST", nodes}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}};
    Problems problems;
    return read_launch_env(environment, problems).master_addr.value_or("");
  };
  EXPECT_EQ(address("node1,node2"), "node1");
  EXPECT_EQ(address("node[1-2]"), "node1");
  EXPECT_EQ(address("node[007-012,20],other3"), "node007");
  EXPECT_EQ(address("gpu[3,5]-ib,gpu9"), "gpu3-ib");
  EXPECT_EQ(address("a-b[12]"), "a-b12");
  // Written in a way that is not read here, and damaged: srun's own machine.
  EXPECT_EQ(address("rack[1-2]node[1-4]"), "10.0.0.1");
  EXPECT_EQ(address("node[1-2"), "10.0.0.1");
  EXPECT_EQ(address(""), "10.0.0.1");
  EXPECT_EQ(address("node7", "1"), "127.0.0.1");
}

TEST(LaunchEnv, RefusesBadVariables) {
  const auto problem = [](Environment environment) {
    ParseRequest from;
    from.environment = std::move(environment);
    std::string text;
    for (const std::string& line : problems_of(from)) text += line + "\n";
    return text;
  };
  EXPECT_EQ(problem({{"RANK", "0"}, {"MASTER_ADDR", "a"}}),
            "environment variable RANK is set, but WORLD_SIZE is not\n");
  EXPECT_EQ(problem({{"WORLD_SIZE", "2"}}),
            "environment variable WORLD_SIZE is set, but RANK is not\n");
  EXPECT_EQ(problem({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}),
            "environment variables RANK=2 and WORLD_SIZE=2: the rank must be below the number of "
            "ranks\n");
  EXPECT_EQ(problem({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
            "RANK is set, but MASTER_ADDR (host of rank 0) is not\n");
  EXPECT_EQ(problem({{"RANK", "0"}, {"WORLD_SIZE", "x"}, {"MASTER_ADDR", "a"}}),
            "environment variable WORLD_SIZE='x': expected an integer from 0 to 10000000\n");
  EXPECT_NE(problem({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "70000"}}), "");
}

TEST(LaunchEnv, OptionsAndEnvironmentAgree) {
  const Environment two = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};
  const auto problem = [](const std::string& words, const Environment& environment) {
    ParseRequest from = request(words);
    from.environment = environment;
    const std::vector<std::string> lines = problems_of(from);
    return lines.empty() ? std::string() : lines.front();
  };
  EXPECT_EQ(problem("--world-size 2 --local-rank 1", two), "");
  EXPECT_NE(problem("--world-size 4", two).find("contradicts the launcher"), std::string::npos);
  EXPECT_NE(problem("--rank 0", two).find("contradicts the launcher"), std::string::npos);
  EXPECT_NE(problem("--local-rank 0", two).find("contradicts the launcher"), std::string::npos);
  EXPECT_NE(problem("--distributed-backend threads --world-size 2", two).find("one process"),
            std::string::npos);
  EXPECT_NE(problem("--world-size 2", {}).find("pentatron launch --nproc-per-node 2"),
            std::string::npos);
  const ParallelConfig threads =
      parse(request("--distributed-backend threads --world-size 4")).config.parallel;
  EXPECT_EQ(threads.world_size, 4);
  const ParallelConfig fake =
      parse(request("--distributed-backend fake --world-size 64 --rank 63")).config.parallel;
  EXPECT_EQ(fake.rank, 63);
  EXPECT_EQ(parse(request("--distributed-backend threads --world-size 2 --rank 1"))
                .no_effect.at(0)
                .spelled,
            "--rank");
  EXPECT_EQ(parse(request("--local-rank 3")).config.parallel.local_rank, 3);
}

}  // namespace
}  // namespace pentatron::config
