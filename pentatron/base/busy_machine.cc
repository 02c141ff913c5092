// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/busy_machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace pentatron {

MachineLoad look_at_machine() {
  MachineLoad machine;
  double load = 0;
  if (::getloadavg(&load, 1) == 1) machine.load = load;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) machine.cores = CPU_COUNT(&set);
  if (const char* ranks = std::getenv("LOCAL_WORLD_SIZE")) {
    machine.ranks_here = std::max(1, std::atoi(ranks));
  }
  // Not OMP_NUM_THREADS: launchers set it to 1, and a rank's threads are counted without it.
  machine.user_decided =
      std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
  return machine;
}

bool should_give_way(const MachineLoad& machine) {
  if (machine.user_decided || machine.cores <= machine.ranks_here) return false;
  // Half a core's work of others is felt by a step that wants all cores.
  constexpr double kFelt = 0.5;
  return machine.load > kFelt;
}

void give_way_when_busy(char** argv) {
  if (!should_give_way(look_at_machine())) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  // By its name, which ps and pkill then show; through the link where the file has been replaced.
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) ::execv(program.c_str(), argv);
  ::execv("/proc/self/exe", argv);
}

}  // namespace pentatron
