// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run.h"

#include <csignal>
#include <map>
#include <optional>
#include <thread>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/signals.h"
#include "pentatron/base/timer.h"
#include "pentatron/config/print.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::training {
namespace {

int signal_number(const std::string& name) {
  static const std::map<std::string, int> kSignals{{"SIGTERM", SIGTERM}, {"SIGINT", SIGINT},
                                                   {"SIGHUP", SIGHUP},   {"SIGQUIT", SIGQUIT},
                                                   {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}};
  const auto found = kSignals.find(name);
  PENTATRON_CHECK(found != kSignals.end(), kConfig, "--exit-signal {} cannot be caught", name);
  return found->second;
}

// Threads of the library in each rank: what was asked, else the cores shared evenly among the ranks
// of this machine.
int threads_per_rank(const config::ParallelConfig& parallel, std::int64_t ranks_here) {
  if (parallel.cpu_threads_per_rank > 0) return static_cast<int>(parallel.cpu_threads_per_rank);
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return static_cast<int>(std::max<std::int64_t>(1, cores / std::max<std::int64_t>(1, ranks_here)));
}

std::chrono::milliseconds timeout_of(const config::ParallelConfig& parallel) {
  return std::chrono::minutes(parallel.distributed_timeout_minutes);
}

// Ranks on this machine: the launcher's word, else all of them.
std::int64_t local_ranks(const config::ParallelConfig& parallel) {
  constexpr std::int64_t kMostRanks = 1 << 20;
  return env_int("LOCAL_WORLD_SIZE", 1, kMostRanks).value_or(parallel.world_size);
}

void print_start(const config::ParsedOptions& options) {
  if (options.config.parallel.rank != 0) return;
  log::print_line(config::argument_dump(options.config));
  if (!options.always_so.empty()) log::print_line(config::always_so_line(options));
  log::info("{}", config::layout_line(options.config));
}

TrainerReport run_one_rank(const config::RunConfig& config, comm::Backend& backend, int threads,
                           const TrainerHooks& hooks) {
  tensor::set_up_rank_thread(threads);
  try {
    TrainerReport report = run_training(config, backend, hooks);
    backend.shutdown();
    return report;
  } catch (const std::exception& error) {
    backend.poison(error.what());
    throw;
  }
}

}  // namespace

comm::ThreadsOptions threads_options(const config::ParallelConfig& parallel) {
  return {.world_size = parallel.world_size,
          .threads_per_rank = threads_per_rank(parallel, parallel.world_size),
          .timeout = timeout_of(parallel)};
}

comm::GlooOptions gloo_options(const config::ParallelConfig& parallel) {
  return {.rank = parallel.rank,
          .world_size = parallel.world_size,
          .master_addr = parallel.master_addr,
          .master_port = parallel.master_port,
          .timeout = timeout_of(parallel)};
}

TrainerReport run_pretrain(const config::ParsedOptions& options) {
  const Timer since_start;
  const config::RunConfig& config = options.config;
  const config::ParallelConfig& parallel = config.parallel;
  // Determinism is the default on the CPU.
  tensor::set_up_process(/*deterministic=*/true);
  if (const auto fault = env_string("PENTATRON_PLANTED_FAULT")) {
    log::warn("PENTATRON_PLANTED_FAULT={} breaks this run on purpose (a switch of the tests)",
              *fault);
  }
  print_start(options);
  std::optional<SignalFlag> flag;
  if (config.training.exit_signal_handler)
    flag.emplace({signal_number(config.training.exit_signal)});
  const TrainerHooks hooks{.exit_signal_seen = [&flag] { return flag && flag->triggered(); },
                           .seconds_before_start = since_start.seconds()};
  if (parallel.world_size == 1) {
    const auto backend = comm::make_single_backend();
    return run_one_rank(config, *backend, threads_per_rank(parallel, 1), hooks);
  }
  if (parallel.distributed_backend == "threads") {
    TrainerReport report;
    comm::run_threads(threads_options(parallel), [&](comm::Backend& backend) {
      const TrainerReport mine = run_training(config, backend, hooks);
      if (backend.rank() == 0) report = mine;
    });
    return report;
  }
  if (parallel.distributed_backend == "gloo") {
    const auto backend = comm::make_gloo_backend(gloo_options(parallel));
    return run_one_rank(config, *backend, threads_per_rank(parallel, local_ranks(parallel)), hooks);
  }
  PENTATRON_THROW(
      kUnsupported,
      "--distributed-backend {} does not train on this machine: use gloo (processes) or threads",
      parallel.distributed_backend);
}

}  // namespace pentatron::training
