// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "pentatron/config/problems.h"

namespace pentatron::config {

using Environment = std::map<std::string, std::string, std::less<>>;

// The variables of the process that launchers set (see read_launch_env), and no others.
[[nodiscard]] Environment launcher_variables();

// What a launcher says about this process. Every member is empty when no launcher started it.
struct LaunchEnv {
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t> world_size;
  std::optional<std::int64_t> local_rank;
  std::optional<std::string> master_addr;
  std::optional<std::int64_t> master_port;
  std::string source;  // "RANK", "OMPI_COMM_WORLD_RANK" or "SLURM_PROCID": where the rank came from
};

// Reads, in this order of preference, the variables of torchrun and of our own `launch` (RANK,
// WORLD_SIZE, LOCAL_RANK), of Open MPI (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK) and of Slurm
// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID); MASTER_ADDR and MASTER_PORT for all. On one node the
// address may be missing; on several, the first node of Slurm's step serves.
[[nodiscard]] LaunchEnv read_launch_env(const Environment& environment, Problems& problems);

}  // namespace pentatron::config
