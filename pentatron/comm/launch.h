// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pentatron::comm {

// `pentatron launch --nproc-per-node N ...`: starts N processes of one machine by exec with
// torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT),
// passes signals on, and when one dies ends the others (SIGTERM, then SIGKILL after the grace) and
// returns its exit code. Each rank leads a process group, so what a wrapper script has started ends
// as well, even when the launcher is killed. Bad options or a command that cannot be run: kConfig;
// no process: kIo.
struct LaunchOptions {
  int nproc_per_node = 1;
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free port (one node only)
  // From SIGTERM to SIGKILL. Without a number 1 s after a rank has failed, whose peers can end
  // nothing together any more, and 10 s where the launcher was asked to stop and ranks may be
  // saving.
  std::optional<int> grace_seconds = {};
  // Several nodes: the job's token (job_environment.h), the same on all; empty: PENTATRON_JOB_TOKEN
  // or what else the environment says. One node draws one for each job.
  std::string job_token = {};
  std::vector<std::string> command;
};
[[nodiscard]] int launch(const LaunchOptions& options);
// A TCP port of 127.0.0.1 that was free a moment ago; none: kComm.
[[nodiscard]] int free_port();

}  // namespace pentatron::comm
