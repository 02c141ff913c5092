// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/launch_env.h"

#include <array>

#include "pentatron/base/env.h"
#include "pentatron/base/format.h"
#include "pentatron/config/convert.h"

namespace pentatron::config {
namespace {

struct Launcher {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* num_nodes;  // a variable whose value 1 says that all ranks share a host
};
constexpr std::array kLaunchers = {
    Launcher{"RANK", "WORLD_SIZE", "LOCAL_RANK", nullptr},
    Launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", nullptr},
    Launcher{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NNODES"},
};

std::optional<std::string> text(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  if (found == environment.end()) return std::nullopt;
  return found->second;
}

std::optional<std::int64_t> number(const Environment& environment, std::string_view name,
                                   std::int64_t max, Problems& problems) {
  const std::optional<std::string> word = text(environment, name);
  if (!word) return std::nullopt;
  const std::optional<std::int64_t> value = parse_integer(*word);
  if (!value || *value < 0 || *value > max) {
    problems.add(fmt::format("environment variable {}={}: expected an integer from 0 to {}", name,
                             quoted_for_message(*word), max));
    return std::nullopt;
  }
  return value;
}

bool all_on_one_host(const Launcher& launcher, const LaunchEnv& env,
                     const Environment& environment) {
  if (env.world_size == 1) return true;
  if (launcher.num_nodes != nullptr) return text(environment, launcher.num_nodes) == "1";
  const std::string local_size(std::string_view(launcher.rank) == "RANK"
                                   ? "LOCAL_WORLD_SIZE"
                                   : "OMPI_COMM_WORLD_LOCAL_SIZE");
  const std::optional<std::string> size = text(environment, local_size);
  return size && env.world_size && *size == std::to_string(*env.world_size);
}

// The first of Slurm's nodes of this step ("node[007-9,12],other" -> "node007"), where rank 0 runs.
// srun's own machine may be another: a login node.
std::optional<std::string> first_node(const Environment& environment) {
  const std::optional<std::string> list = text(environment, "SLURM_STEP_NODELIST");
  if (!list) return std::nullopt;
  const std::size_t end = list->find_first_of("[,");
  std::string name = list->substr(0, end);
  if (end != std::string::npos && (*list)[end] == '[') {
    const std::size_t number = list->find_first_of("-,]", end);
    const std::size_t close = list->find(']', end);
    if (number == std::string::npos || close == std::string::npos) return std::nullopt;
    name += list->substr(end + 1, number - end - 1);
    // What stands behind the brackets ("node[1-2]-ib"); further brackets are not for us.
    const std::size_t next = list->find_first_of("[,", close);
    if (next != std::string::npos && (*list)[next] == '[') return std::nullopt;
    name += list->substr(close + 1, next == std::string::npos ? next : next - close - 1);
  }
  if (name.empty()) return std::nullopt;
  return name;
}

}  // namespace

Environment launcher_variables() {
  constexpr std::array kNames = {"RANK",
                                 "WORLD_SIZE",
                                 "LOCAL_RANK",
                                 "LOCAL_WORLD_SIZE",
                                 "MASTER_ADDR",
                                 "MASTER_PORT",
                                 "OMPI_COMM_WORLD_RANK",
                                 "OMPI_COMM_WORLD_SIZE",
                                 "SLURM_PROCID",
                                 "SLURM_NTASKS",
                                 "SLURM_LOCALID",
                                 "SLURM_NNODES",
                                 "OMPI_COMM_WORLD_LOCAL_RANK",
                                 "OMPI_COMM_WORLD_LOCAL_SIZE",
                                 "SLURM_STEP_NODELIST",
                                 "SLURM_LAUNCH_NODE_IPADDR"};
  Environment environment;
  for (const char* name : kNames) {
    if (std::optional<std::string> value = env_string(name)) {
      environment.emplace(name, std::move(*value));
    }
  }
  return environment;
}

LaunchEnv read_launch_env(const Environment& environment, Problems& problems) {
  constexpr std::int64_t kMaxRanks = 10'000'000;
  constexpr std::int64_t kMaxPort = 65535;
  LaunchEnv env;
  for (const Launcher& launcher : kLaunchers) {
    if (!environment.contains(launcher.rank)) continue;
    env.source = launcher.rank;
    env.rank = number(environment, launcher.rank, kMaxRanks, problems);
    env.world_size = number(environment, launcher.size, kMaxRanks, problems);
    env.local_rank = number(environment, launcher.local_rank, kMaxRanks, problems);
    if (!environment.contains(launcher.size)) {
      problems.add(fmt::format("environment variable {} is set, but {} is not", launcher.rank,
                               launcher.size));
    }
    if (env.rank && env.world_size && *env.rank >= *env.world_size) {
      problems.add(
          fmt::format("environment variables {}={} and {}={}: the rank must be below the "
                      "number of ranks",
                      launcher.rank, *env.rank, launcher.size, *env.world_size));
    }
    env.master_addr = text(environment, "MASTER_ADDR");
    if (!env.master_addr && all_on_one_host(launcher, env, environment)) {
      env.master_addr = "127.0.0.1";
    }
    // mpirun's own first node is in no step.
    const bool slurm = launcher.num_nodes != nullptr;
    if (!env.master_addr && slurm) env.master_addr = first_node(environment);
    if (!env.master_addr) env.master_addr = text(environment, "SLURM_LAUNCH_NODE_IPADDR");
    if (!env.master_addr || env.master_addr->empty()) {
      problems.add(fmt::format("{} is set, but MASTER_ADDR (host of rank 0) is not", env.source));
    }
    env.master_port = number(environment, "MASTER_PORT", kMaxPort, problems);
    return env;
  }
  if (environment.contains("WORLD_SIZE")) {
    problems.add("environment variable WORLD_SIZE is set, but RANK is not");
  }
  return env;
}

}  // namespace pentatron::config
