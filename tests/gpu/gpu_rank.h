// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "pentatron/base/env.h"
#include "pentatron/comm/launch.h"
#include "pentatron/comm/nccl_backend.h"
#include "pentatron/tensor/device.h"

// Tests whose ranks are processes of this program: one test starts the others, which are skipped
// otherwise.
namespace pentatron::gpu_test {

// A rank by what the launcher set: its GPU, and nccl over all of them.
struct GpuRank {
  std::int64_t world = 1;
  Device device;
  std::unique_ptr<comm::Backend> backend;
};
inline GpuRank make_gpu_rank() {
  const auto local = static_cast<int>(env_int("LOCAL_RANK").value());
  const std::int64_t world = env_int("WORLD_SIZE").value();
  const Device device = tensor::resolve_device("cuda", local, static_cast<int>(world));
  tensor::use_device(device);
  return {.world = world,
          .device = device,
          .backend = comm::make_nccl_backend({.rank = env_int("RANK").value(),
                                              .world_size = world,
                                              .master_addr = env_string("MASTER_ADDR").value(),
                                              .master_port = env_int("MASTER_PORT").value(),
                                              .timeout = std::chrono::milliseconds(120'000),
                                              .device = device})};
}

// The exit code of `count` processes that run the test `name` with `variable` set.
inline int launch_test(const char* variable, int count, const std::string& name) {
  ::setenv(variable, "1", 1);
  // Ranks of these tests make hundreds of communicators for messages of kilobytes: small ones are
  // made sooner.
  ::setenv("NCCL_MAX_NCHANNELS", "2", 0);
  ::setenv("NCCL_BUFFSIZE", "131072", 0);
  comm::LaunchOptions launch;
  launch.nproc_per_node = count;
  launch.command = {std::filesystem::read_symlink("/proc/self/exe"), "--gtest_filter=" + name};
  const int code = comm::launch(launch);
  ::unsetenv(variable);
  return code;
}

}  // namespace pentatron::gpu_test
