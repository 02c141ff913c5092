// SPDX-License-Identifier: Apache-2.0
// One rank of the process tests of comm/: comm_worker MODE [FOLDER], started by comm_test through
// launch() with the launcher's variables. Exit code 0 means that this rank saw what it should see;
// what went wrong stands in FOLDER/rank<N>.txt and on stderr.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/comm/backend.h"
#include "pentatron/comm/conformance_test.h"
#include "pentatron/comm/launched_rank_test_support.h"

namespace pentatron::comm {
namespace {

using testing_support::Clock;
using testing_support::group_of_all;
using testing_support::write_result;

GlooOptions options_from_environment() {
  return testing_support::launched_options<GlooOptions>("COMM_WORKER_TIMEOUT_MS");
}

// Into the rank's file: the error, and how long it took to come. The exit code.
int report_error(const Error& error, Clock::time_point begin, Backend& backend,
                 const std::string& folder) {
  testing_support::write_error(folder, backend.rank(), error, begin);
  backend.poison(error.what());
  return exit_code(error.kind());
}

// Rank 1 fails in the named way while its peers wait for it; they must get a kComm error soon, and
// say so in their file.
int failing_peer(const std::string& mode, const std::string& folder) {
  ::signal(SIGTERM,
           SIG_IGN);  // the launcher ends us when rank 1 dies; first we want to see the error
  const GlooOptions options = options_from_environment();
  const auto backend = make_gloo_backend(options);
  const auto group = group_of_all(*backend);
  all_reduce(*group, tensor::ones({4}, DType::Float));
  if (options.rank == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (mode == "kill") ::raise(SIGKILL);
    backend->poison("a planted error in rank 1\x1b[31m");  // as from a hostile file's name
    if (mode == "poison") {                                // stays alive: its sockets remain open
      std::this_thread::sleep_for(std::chrono::seconds(2));
    }
    return 3;
  }
  const auto begin = Clock::now();
  try {
    if (mode == "poison" && options.rank == 2) {
      const Tensor t = tensor::ones({4}, DType::Float);
      group->recv(t, 1)->wait();
    } else {
      all_reduce(*group, tensor::ones({4}, DType::Float));
    }
    write_result(folder, options.rank, "no error");
  } catch (const Error& error) {
    return report_error(error, begin, *backend, folder);
  }
  return 1;
}

// Until every rank has written such a file.
void meet_by_files(const std::string& folder, const std::string& name, const GlooOptions& options) {
  std::ofstream(folder + "/" + name + std::to_string(options.rank)) << "here";
  for (std::int64_t rank = 0; rank < options.world_size; ++rank) {
    while (!std::ifstream(folder + "/" + name + std::to_string(rank)).good()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

// Reductions without end; the test stops one of the ranks. "stop": rank 0 stops itself before the
// first group is made. The error that ends a rank goes into its file.
int reduce_until_error(const std::string& mode, const std::string& folder) {
  ::signal(SIGTERM, SIG_IGN);
  const GlooOptions options = options_from_environment();
  write_result(folder, options.rank, std::to_string(::getpid()));
  meet_by_files(folder, "started", options);  // the short time-out is not for loading programs
  const auto backend = make_gloo_backend(options);
  auto begin = Clock::now();
  try {
    if (mode == "stop") {
      meet_by_files(folder, "joined", options);
      if (options.rank == 0) ::raise(SIGSTOP);
    }
    const auto group = group_of_all(*backend);
    while (true) {
      begin = Clock::now();
      all_reduce(*group, tensor::ones({4}, DType::Float));
      std::ofstream(folder + "/steps" + std::to_string(options.rank)) << "some";
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  } catch (const Error& error) {
    return report_error(error, begin, *backend, folder);
  }
}

// Reductions until a file named stop is there, then a clean end.
int reduce_until_told(const std::string& folder) {
  const GlooOptions options = options_from_environment();
  const auto backend = make_gloo_backend(options);
  {
    const auto group = group_of_all(*backend);
    const auto told = [&] { return std::ifstream(folder + "/stop").good() ? 1.0 : 0.0; };
    while (all_reduce_value(*group, told(), ReduceOp::kMax) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  backend->shutdown();
  return 0;
}

// Ranks call what does not fit; the error of each goes into its file.
void call_wrongly(const std::string& kind, Backend& backend, Group& group) {
  const bool first = backend.rank() == 0;
  const Tensor t = tensor::ones({4}, DType::Float);
  if (kind == "operation") {
    first ? group.all_reduce(t, ReduceOp::kSum)->wait() : group.broadcast(t, 0)->wait();
  } else if (kind == "reduction") {
    all_reduce(group, t, first ? ReduceOp::kSum : ReduceOp::kMax);
  } else if (kind == "size") {
    all_reduce(group, tensor::ones({first ? 4 : 5}, DType::Float));
  } else if (kind == "empty") {
    all_reduce(group, tensor::ones({first ? 4 : 0}, DType::Float));
  } else if (kind == "dtype") {
    all_reduce(group, tensor::ones({4}, first ? DType::Float : DType::BFloat16));
  } else if (kind == "rows") {
    const Tensor in = tensor::ones({3, 2}, DType::Float);
    const Tensor out = tensor::empty({2, 2}, DType::Float);
    group.all_to_all(out, in, {1, 1}, {1, 2})->wait();
  } else if (kind == "message" || kind == "empty-message") {
    if (first) {
      group.recv(t, 1)->wait();
    } else {
      group.send(tensor::ones({kind == "message" ? 5 : 0}, DType::Float), 0)->wait();
      group.barrier();  // until rank 0's word comes
    }
  } else if (kind == "late") {
    // Rank 1 lives and does something else.
    if (backend.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(6));
    all_reduce(group, t);
  }
}

int wrong_call(const std::string& kind, const std::string& folder) {
  ::signal(SIGTERM, SIG_IGN);
  const GlooOptions options = options_from_environment();
  const auto backend = make_gloo_backend(options);
  const auto group = group_of_all(*backend);
  group->barrier();
  const auto begin = Clock::now();
  try {
    call_wrongly(kind, *backend, *group);
    write_result(folder, options.rank, "no error");
  } catch (const Error& error) {
    return report_error(error, begin, *backend, folder);
  }
  return 1;
}

int run_mode(const std::string& mode, const std::string& folder) {
  if (mode == "reduce" || mode == "stop") return reduce_until_error(mode, folder);
  if (mode.starts_with("wrong-")) return wrong_call(mode.substr(6), folder);
  if (mode == "work") return reduce_until_told(folder);
  if (mode == "kill" || mode == "throw" || mode == "poison") return failing_peer(mode, folder);
  if (mode == "exit") return static_cast<int>(env_int("RANK").value() == 1 ? 7 : 0);
  if (mode == "die") {  // rank 1 says something and ends, the others would go on for a minute
    if (env_int("RANK").value() != 1) {
      std::this_thread::sleep_for(std::chrono::seconds(60));
      return 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (int line = 0; line < 40; ++line) std::fprintf(stderr, "line %d of rank 1\n", line);
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    write_result(folder, 1, std::to_string(std::chrono::duration<double>(now).count()));
    return 7;
  }
  if (mode == "sleep") {
    write_result(folder, env_int("RANK").value(), std::to_string(::getpid()));
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  }
  if (mode == "stubborn") {  // rank 0 fails, rank 1 ignores SIGTERM
    if (env_int("RANK").value() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return 9;
    }
    ::signal(SIGTERM, SIG_IGN);
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  }
  const auto backend = make_gloo_backend(options_from_environment());
  conformance::run(*backend);
  backend->shutdown();
  return 0;
}

}  // namespace
}  // namespace pentatron::comm

int main(int argc, char** argv) {
  try {
    return pentatron::comm::run_mode(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  } catch (const pentatron::Error& error) {
    std::fprintf(stderr, "comm_worker: %s\n", error.what());
    return pentatron::exit_code(error.kind());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "comm_worker: %s\n", error.what());
    return 1;
  }
}
