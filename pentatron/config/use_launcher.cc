// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/use_launcher.h"

#include "pentatron/config/launch_env.h"

namespace pentatron::config {

bool use_launcher(ParallelConfig& parallel) {
  Problems problems;
  const LaunchEnv env = read_launch_env(launcher_variables(), problems);
  problems.throw_if_any();
  if (env.world_size.value_or(1) <= 1) return false;
  parallel.world_size = *env.world_size;
  parallel.rank = env.rank.value_or(0);
  parallel.local_rank = env.local_rank.value_or(0);
  parallel.master_addr = env.master_addr.value_or(parallel.master_addr);
  parallel.master_port = env.master_port.value_or(parallel.master_port);
  return true;
}

}  // namespace pentatron::config
