// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pentatron {

// What decides how threads that wait for each other wait.
struct MachineLoad {
  double load = 0;            // processes that ran or wanted to, mean of the last minute
  int cores = 1;              // that this process may use
  int ranks_here = 1;         // processes of the job on this machine
  bool user_decided = false;  // OMP_WAIT_POLICY or GOMP_SPINCOUNT is set
};
[[nodiscard]] MachineLoad look_at_machine();

// Whether such threads should sleep: others want the cores. A thread that spins where its partner
// cannot run holds the very core that the partner needs; a step of two threads then takes many
// times as long as one of one thread. On an idle machine spinning is faster.
[[nodiscard]] bool should_give_way(const MachineLoad& machine);

// Where it should: sets OMP_WAIT_POLICY=passive and starts the program anew, as the OpenMP library
// has read it by the time main runs. Returns where nothing need be done or the start fails. Before
// any thread or file is opened.
void give_way_when_busy(char** argv);

}  // namespace pentatron
