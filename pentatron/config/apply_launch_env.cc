// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/apply_launch_env.h"

namespace pentatron::config {
namespace {

void check_against_launcher(const Origins& origins, std::string_view dest, std::string_view option,
                            std::int64_t value, std::int64_t launched, const LaunchEnv& env,
                            Problems& problems) {
  if (!set_by_user(origins, dest) || value == launched) return;
  problems.add(fmt::format("{} {} contradicts the launcher, which says {} (its variable {} is "
                           "set): drop the option",
                           option, value, launched, env.source),
               dest);
}

}  // namespace

void apply_launch_env(const LaunchEnv& env, ParsedOptions& parsed, Problems& problems) {
  ParallelConfig& parallel = parsed.config.parallel;
  const bool one_process =
      parallel.distributed_backend == "threads" || parallel.distributed_backend == "fake";
  if (one_process) {
    if (env.world_size.value_or(1) > 1) {
      problems.add(
          fmt::format("--distributed-backend {} runs in one process, but the launcher "
                      "started {} ({} is set)",
                      parallel.distributed_backend, *env.world_size, env.source));
    }
    return;
  }
  if (!env.rank || !env.world_size) {
    if (parallel.world_size > 1 && set_by_user(parsed.origins, "world_size")) {
      problems.add(fmt::format("--world-size {} needs other processes: start them with "
                               "`pentatron launch --nproc-per-node {}`, or add "
                               "--distributed-backend threads",
                               parallel.world_size, parallel.world_size),
                   "world_size");
    }
    return;
  }
  check_against_launcher(parsed.origins, "world_size", "--world-size", parallel.world_size,
                         *env.world_size, env, problems);
  check_against_launcher(parsed.origins, "rank", "--rank", parallel.rank, *env.rank, env, problems);
  parallel.rank = *env.rank;
  parallel.world_size = *env.world_size;
  const auto set_origin = [&](std::string_view dest, std::string_view variable) {
    parsed.origins.insert_or_assign(std::string(dest),
                                    ValueOrigin{Origin::kEnvironment, std::string(variable)});
  };
  set_origin("rank", env.source);
  set_origin("world_size", env.source);
  if (env.local_rank) {
    check_against_launcher(parsed.origins, "local_rank", "--local-rank", parallel.local_rank,
                           *env.local_rank, env, problems);
    parallel.local_rank = *env.local_rank;
    set_origin("local_rank", env.source);
  }
  if (env.master_addr) {
    parallel.master_addr = *env.master_addr;
    set_origin("master_addr", "MASTER_ADDR");
  }
  if (env.master_port) {
    parallel.master_port = *env.master_port;
    set_origin("master_port", "MASTER_PORT");
  }
}

}  // namespace pentatron::config
