// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run.h"

#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/screen.h"
#include "pentatron/base/signals.h"
#include "pentatron/base/timer.h"
#include "pentatron/comm/phase.h"
#include "pentatron/config/batch_schedule.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/print.h"
#include "pentatron/config/use_launcher.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/placement.h"
#include "pentatron/training/pretrained.h"
#include "pentatron/training/same_options.h"
#include "pentatron/training/terminal_view.h"

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

std::string place_text(Device device) {
  if (device.is_cpu()) return "cpu";
  const tensor::GpuInfo gpu = tensor::gpus().at(static_cast<std::size_t>(device.index()));
  return fmt::format("{} ({}, {} GiB)", device.str(), gpu.name, gpu.memory_bytes >> 30);
}

void print_start(const config::ParsedOptions& options, const config::RunConfig& config,
                 Device device, TerminalView* view) {
  std::vector<std::string> notes{config::layers_line(options), config::lowered_batches_line(config),
                                 config::always_so_line(options), config::no_effect_line(options)};
  const config::Recording graphs = config::recording(config.training);
  const bool layers = graphs == config::Recording::kLocal;
  if (device.is_cpu() && (layers || graphs == config::Recording::kFullIteration)) {
    notes.push_back(
        fmt::format("without effect: --cuda-graph-impl {} (this run computes on the CPU, where {} "
                    "are not recorded)",
                    config.training.cuda_graph_impl, layers ? "layers" : "steps"));
  }
  if (view != nullptr) {
    view->start(place_text(device));
    for (const std::string& line : notes) {
      if (!line.empty()) view->note(line);
    }
    return;
  }
  if (config.parallel.rank != 0) return;
  log::print_line(config::argument_dump(config));
  for (const std::string& line : notes) {
    if (!line.empty()) log::print_line(line);
  }
  log::info("{}", config::layout_line(config));
  if (device.is_cpu()) return;
  log::info("computing on {}", place_text(device));
}

// The process that has the run's last rank speaks for all.
std::unique_ptr<TerminalView> make_view(const config::RunConfig& config) {
  const config::ParallelConfig& parallel = config.parallel;
  const bool processes = parallel.world_size > 1 && parallel.distributed_backend != "threads";
  if (processes) screen::share();
  if (wants_terminal_view(config.logging)) {
    return std::make_unique<TerminalView>(config,
                                          !processes || parallel.rank == parallel.world_size - 1);
  }
  screen::set_terse(config.logging.quiet);
  if (config.logging.quiet && !env_string("PENTATRON_LOG_LEVEL")) {
    log::set_level(log::Level::kWarn);
  }
  return nullptr;
}

// Twelve steps deserve no two hundred batches of evaluation. Returns what is told of it.
std::string shorten_evaluation(const config::ParsedOptions& options, config::RunConfig& config) {
  config::TrainingConfig& t = config.training;
  if (options.origins.contains("eval_iters") || t.full_validation || t.skip_train) return "";
  const std::int64_t steps = t.train_samples > 0
                                 ? config::batch_schedule(config).iterations_for(t.train_samples)
                                 : t.train_iters;
  if (steps < 1 || steps >= t.eval_iters) return "";
  t.eval_iters = steps;
  return fmt::format(
      "evaluations take {} batches, as many as this run has steps; --eval-iters sets their number",
      steps);
}

// Options, and GPU or host memory, all ranks alike: they would otherwise show as a hang or as a
// failure of the transport.
void check_same_start(comm::Backend& backend, const config::RunConfig& config, Device device) {
  if (backend.world_size() == 1) return;
  std::vector<std::int64_t> everyone;
  for (std::int64_t rank = 0; rank < backend.world_size(); ++rank) everyone.push_back(rank);
  const auto world = backend.make_group(everyone, "placement");
  const auto all = comm::all_gather_bytes(*world, device.is_cuda() ? "cuda" : "cpu");
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    PENTATRON_CHECK(
        all[rank] == all[0], kConfig,
        "rank 0 computes on {}, rank {} on {}: give --device cuda or --device cpu to all", all[0],
        rank, all[rank]);
  }
  check_same_options(*world, config);
}

void run_process(comm::Backend& backend, const Placement& place, int threads,
                 const RankBody& body) {
  tensor::set_up_rank_thread(threads);
  try {
    body(backend, place.device);
    backend.shutdown();
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

comm::NcclOptions nccl_options(const config::ParallelConfig& parallel, Device device) {
  return {.rank = parallel.rank,
          .world_size = parallel.world_size,
          .master_addr = parallel.master_addr,
          .master_port = parallel.master_port,
          .timeout = timeout_of(parallel),
          .device = device,
          .check_collectives = parallel.check_collectives};
}

void on_place(const config::ParallelConfig& parallel, const Placement& place,
              const RankBody& body) {
  if (parallel.world_size == 1) {
    const auto backend = comm::make_single_backend();
    return run_process(*backend, place, threads_per_rank(parallel, 1), body);
  }
  if (place.backend == "threads") {
    comm::run_threads(threads_options(parallel),
                      [&](comm::Backend& backend) { body(backend, kCpu); });
    return;
  }
  const int threads = threads_per_rank(parallel, local_ranks(parallel));
  if (place.backend == "gloo") {
    const auto backend = comm::make_gloo_backend(gloo_options(parallel));
    return run_process(*backend, place, threads, body);
  }
  if (place.backend == "nccl") {
    const auto backend = comm::make_nccl_backend(nccl_options(parallel, place.device));
    return run_process(*backend, place, threads, body);
  }
  PENTATRON_THROW(
      kUnsupported,
      "--distributed-backend {} does not train: use gloo or nccl (processes), or threads",
      place.backend);
}

void on_ranks(const config::RunConfig& config, const RankBody& body) {
  config::ParallelConfig parallel = config.parallel;
  const bool launched = config::use_launcher(parallel);
  if (!launched && parallel.world_size > 1) parallel.distributed_backend = "threads";
  const Placement place = place_run(parallel, config.training.device);
  set_up_place(place, config.training.deterministic_mode);
  on_place(parallel, place, body);
}

TrainerReport run_pretrain(const config::ParsedOptions& options) {
  const Timer since_start;
  const Placement place = place_run(options.config.parallel, options.config.training.device);
  config::RunConfig config = options.config;
  config.training.device = place.device.is_cuda() ? "cuda" : "cpu";
  config.parallel.distributed_backend = place.backend;
  const config::ParallelConfig& parallel = config.parallel;
  set_up_place(place, config.training.deterministic_mode);
  const std::string remarks[] = {use_pretrained(config.checkpoint),
                                 shorten_evaluation(options, config)};
  const std::unique_ptr<TerminalView> view = make_view(config);
  print_start(options, config, place.device, view.get());
  for (const std::string& remark : remarks) {
    if (remark.empty()) continue;
    if (view != nullptr) {
      view->note(remark);
    } else if (parallel.rank == 0) {
      log::info("{}", remark);
    }
  }
  std::optional<SignalFlag> flag;
  if (config.training.exit_signal_handler)
    flag.emplace({signal_number(config.training.exit_signal)});
  const tensor::MemoryMeter memory;
  const TrainerHooks hooks{.exit_signal_seen = [&flag] { return flag && flag->triggered(); },
                           .seconds_before_start = since_start.seconds(),
                           .memory = &memory,
                           .view = view.get()};
  TrainerReport report;
  on_place(parallel, place, [&](comm::Backend& backend, Device device) {
    if (place.backend != "threads") {
      comm::note_phase(backend, "comparing options");
      check_same_start(backend, config, device);
    }
    const TrainerReport mine = run_training(config, backend, hooks, device);
    if (place.backend != "threads" || backend.rank() == 0) report = mine;
  });
  return report;
}

}  // namespace pentatron::training
