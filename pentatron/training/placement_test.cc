// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/placement.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "pentatron/base/error.h"

namespace pentatron::training {
namespace {

config::ParallelConfig world(std::int64_t size, const std::string& backend) {
  config::ParallelConfig parallel;
  parallel.world_size = size;
  parallel.distributed_backend = backend;
  return parallel;
}

std::string refusal(const config::ParallelConfig& parallel, const std::string& device) {
  try {
    static_cast<void>(place_run(parallel, device));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "nothing was refused";
}

// The default tests are shown no GPU.
TEST(Placement, WithoutGpusAutoIsTheCpuAndGloo) {
  for (const char* device : {"auto", "cpu"}) {
    const Placement place = place_run(world(4, "auto"), device);
    EXPECT_TRUE(place.device.is_cpu());
    EXPECT_EQ(place.backend, "gloo");
  }
  EXPECT_EQ(place_run(world(4, "threads"), "auto").backend, "threads");
  EXPECT_EQ(place_run(world(1, "auto"), "auto").backend, "gloo");
}

TEST(Placement, RefusesWhatDoesNotGoTogether) {
  for (const char* device : {"auto", "cpu"}) {
    const std::string nccl = refusal(world(2, "nccl"), device);
    EXPECT_NE(nccl.find("--distributed-backend gloo"), std::string::npos) << nccl;
  }
  for (const char* backend : {"gloo", "threads", "fake"}) {
    const std::string host = refusal(world(2, backend), "cuda");
    EXPECT_NE(host.find(backend), std::string::npos) << host;
    EXPECT_NE(host.find("--device cpu"), std::string::npos) << host;
  }
  EXPECT_NE(refusal(world(2, "auto"), "cuda").find("0 GPUs"), std::string::npos);
}

TEST(Placement, CountsTheRanksOfThisMachine) {
  EXPECT_EQ(local_ranks(world(16, "auto")), 16);
  ::setenv("SLURM_PROCID", "3", 1);
  ::setenv("SLURM_NNODES", "2", 1);
  EXPECT_EQ(local_ranks(world(16, "auto")), 8);
  ::setenv("LOCAL_WORLD_SIZE", "4", 1);
  EXPECT_EQ(local_ranks(world(16, "auto")), 4);
  for (const char* name : {"SLURM_PROCID", "SLURM_NNODES", "LOCAL_WORLD_SIZE"}) ::unsetenv(name);
}

}  // namespace
}  // namespace pentatron::training
