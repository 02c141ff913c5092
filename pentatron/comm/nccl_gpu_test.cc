// SPDX-License-Identifier: Apache-2.0
// The nccl backend over real processes. Tests of NcclRank are the ranks: they run in processes that
// the tests of NcclBackend start through launch(), and are skipped otherwise.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/comm/conformance_test.h"
#include "pentatron/comm/launch.h"
#include "pentatron/comm/launched_rank_test_support.h"
#include "pentatron/comm/nccl_backend.h"
#include "pentatron/tensor/device_queue.h"
#include "pentatron/tensor/gpu_test_support.h"

namespace pentatron::comm {
namespace {

using std::chrono::milliseconds;
using testing_support::Clock;
using testing_support::contains;
using testing_support::group_of_all;
using testing_support::seconds_of;

// --- Ranks

bool is_rank() { return env_string("PENTATRON_NCCL_FOLDER").has_value(); }
std::string folder() { return env_string("PENTATRON_NCCL_FOLDER").value(); }

NcclOptions options_from_environment() {
  auto options = testing_support::launched_options<NcclOptions>("PENTATRON_NCCL_TIMEOUT_MS");
  options.device = tensor::resolve_device("cuda", static_cast<int>(env_int("LOCAL_RANK").value()),
                                          static_cast<int>(env_int("LOCAL_WORLD_SIZE").value()));
  tensor::use_device(options.device);
  return options;
}

void write_result(std::int64_t rank, const std::string& text) {
  testing_support::write_result(folder(), rank, text);
}

// The process as a rank of all.
struct LaunchedRank {
  explicit LaunchedRank(const NcclOptions& given = options_from_environment())
      : options(given), backend(make_nccl_backend(options)), group(group_of_all(*backend)) {}
  NcclOptions options;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Group> group;
};

#define NEEDS_LAUNCH() \
  if (!is_rank()) GTEST_SKIP() << "a rank; started by the tests of NcclBackend"

TEST(NcclRank, Conformance) {
  NEEDS_LAUNCH();
  const NcclOptions options = options_from_environment();
  const auto backend = make_nccl_backend(options);
  conformance::run(*backend, {.device = options.device, .rounds_once = false});
  conformance::run(*backend, {});  // CPU tensors
  backend->shutdown();
}

// With --check-collectives: every operation as without, then calls that do not fit.
TEST(NcclRank, Checked) {
  NEEDS_LAUNCH();
  NcclOptions options = options_from_environment();
  options.check_collectives = true;
  const auto backend = make_nccl_backend(options);
  conformance::run(*backend, {.device = options.device, .rounds_once = false});
  backend->shutdown();
}

TEST(NcclRank, WrongOrder) {
  NEEDS_LAUNCH();
  NcclOptions options = options_from_environment();
  options.check_collectives = true;
  const LaunchedRank self(options);
  const auto& [given, backend, group] = self;
  const Tensor t = tensor::ones({4}, DType::Float, options.device);
  all_reduce(*group, t);
  const auto begin = Clock::now();
  try {
    if (options.rank == 0) {
      all_reduce(*group, t);
    } else {
      group->broadcast(t, 0)->wait();
    }
    write_result(options.rank, "no error");
  } catch (const Error& error) {
    testing_support::write_error(folder(), options.rank, error, begin);
    backend->poison(error.what());
  }
}

// Both directions at once with tensors that no buffer of NCCL's holds: neither send may wait for
// the other.
TEST(NcclRank, BothDirections) {
  NEEDS_LAUNCH();
  const LaunchedRank self;
  const auto& [options, backend, group] = self;
  const int peer = 1 - group->rank();
  constexpr std::int64_t kSize = std::int64_t{1} << 26;
  for (int round = 0; round < 5; ++round) {
    const Tensor out = tensor::full({kSize}, group->rank() + round, DType::Float, options.device);
    const Tensor in = tensor::empty({kSize}, DType::Float, options.device);
    const Tensor sum = tensor::ones({kSize}, DType::Float, options.device);
    const WorkPtr sent = group->send(out, peer);
    const WorkPtr summed = group->all_reduce(sum, ReduceOp::kSum);
    const WorkPtr received = group->recv(in, peer);
    received->wait();
    EXPECT_EQ(in.min().item<float>(), static_cast<float>(peer + round));
    EXPECT_EQ(in.max().item<float>(), static_cast<float>(peer + round));
    sent->wait();
    summed->wait();
    EXPECT_EQ(sum.min().item<float>(), 2.0F);
  }
  backend->shutdown();
}

// The way of a pipeline's stage: the second message comes only after the answer to the first, and
// between them the whole device is waited for, as the first use of a kernel may do.
TEST(NcclRank, PostedAhead) {
  NEEDS_LAUNCH();
  const LaunchedRank self;
  const auto& [options, backend, group] = self;
  const int peer = 1 - group->rank();
  group->connect({peer}, {peer});
  constexpr std::int64_t kSize = std::int64_t{1} << 24;
  const auto message = [&](double value) {
    return tensor::full({kSize}, value, DType::Float, options.device);
  };
  if (group->rank() == 0) {
    const Tensor answer = message(0), first = message(1), second = message(2);
    const WorkPtr answered = group->recv_later(answer, 1);
    const WorkPtr sent = group->send(first, 1);
    answered->wait();
    EXPECT_EQ(answer.max().item<float>(), 4.0F);
    const WorkPtr sent_too = group->send(second, 1);
    sent->wait();
    sent_too->wait();
  } else {
    const Tensor first = message(0), second = message(0);
    const WorkPtr one = group->recv_later(first, 0);
    const WorkPtr two = group->recv_later(second, 0);
    one->wait();
    const Tensor answer = first.mul(4);
    tensor::synchronize(options.device);
    const WorkPtr sent = group->send(answer, 0);
    two->wait();
    EXPECT_EQ(second.min().item<float>(), 2.0F);
    EXPECT_EQ(first.max().item<float>(), 1.0F);
    sent->wait();
  }
  backend->shutdown();
}

// Collectives and a send inside a recorded step, replayed with new inputs.
TEST(NcclRank, Recorded) {
  NEEDS_LAUNCH();
  const LaunchedRank self;
  const auto& [options, backend, group] = self;
  const bool first = group->rank() == 0;
  const Tensor input = tensor::ones({1000}, DType::Float, options.device);
  const Tensor sum = tensor::zeros({1000}, DType::Float, options.device);
  const Tensor passed = tensor::zeros({1000}, DType::Float, options.device);
  const auto step = [&] {
    const Tensor doubled = input.mul(2);
    sum.copy_(doubled);
    const WorkPtr work = group->all_reduce(sum, ReduceOp::kSum);
    const WorkPtr way = first ? group->send(doubled, 1) : group->recv(passed, 0);
    work->wait();
    way->wait();
    passed.add_(1);
  };
  {
    tensor::StepGraph graph(options.device);
    graph.warm_up(step);
    graph.capture(step);
    for (const double value : {3.0, 5.0}) {
      input.fill_(value + (first ? 0 : 1));
      graph.replay();
      EXPECT_EQ(sum.min().item<float>(), static_cast<float>(4 * value + 2));
      EXPECT_EQ(sum.max().item<float>(), static_cast<float>(4 * value + 2));
      if (!first) {
        EXPECT_EQ(passed.max().item<float>(), static_cast<float>(2 * value + 1));
      }
    }
  }
  // The lanes are as usable as before.
  const Tensor plain = tensor::ones({10}, DType::Float, options.device);
  all_reduce(*group, plain);
  EXPECT_EQ(plain.sum().item<float>(), 20.0F);
  backend->shutdown();
}

// Rank 1 fails in the way that PENTATRON_NCCL_WAY names while rank 0's GPU waits for it.
TEST(NcclRank, FailingPeer) {
  NEEDS_LAUNCH();
  // The launcher ends us when rank 1 dies; first we want to see the error.
  ::signal(SIGTERM, SIG_IGN);
  const std::string way = env_string("PENTATRON_NCCL_WAY").value();
  const LaunchedRank self;
  const auto& [options, backend, group] = self;
  const Tensor t = tensor::ones({1000}, DType::Float, options.device);
  all_reduce(*group, t);
  EXPECT_EQ(t.sum().item<float>(), 1000.0F * static_cast<float>(options.world_size));
  if (options.rank == 1) {
    std::this_thread::sleep_for(milliseconds(300));
    if (way == "poison") backend->poison("a planted error in rank 1");
    // "silence": nothing at all; the process lives on.
    std::this_thread::sleep_for(milliseconds(way == "poison" ? 1500 : 15'000));
    ::_exit(3);
  }
  const auto begin = Clock::now();
  try {
    all_reduce(*group, t);
    // The GPU waits for rank 1; when the watch ends that, the sum means nothing.
    static_cast<void>(t.sum().item<float>());
    group->broadcast(t, 0)->wait();
    write_result(options.rank, "no error");
  } catch (const Error& error) {
    testing_support::write_error(folder(), options.rank, error, begin);
    ::_exit(exit_code(error.kind()));
  }
  ::_exit(1);
}

TEST(NcclRank, SharedGpu) {
  NEEDS_LAUNCH();
  NcclOptions options = options_from_environment();
  options.device = Device("cuda:0");
  try {
    const auto backend = make_nccl_backend(options);
    write_result(options.rank, "no error");
  } catch (const Error& error) {
    write_result(options.rank, fmt::format("{}: {}", to_string(error.kind()), error.what()));
  }
}

// --- The tests that start them

struct Outcome {
  int code = 0;
  std::vector<std::string> results;  // what the ranks wrote
};

// With these variables in the ranks' environment.
Outcome run_ranks(int count, const std::string& test,
                  std::map<std::string, std::string> variables = {}) {
  const TempFolder temp("nccl");
  variables["PENTATRON_NCCL_FOLDER"] = temp.path();
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  LaunchOptions options;
  options.nproc_per_node = count;
  options.grace_seconds = 30;
  options.command = {std::filesystem::read_symlink("/proc/self/exe"),
                     "--gtest_filter=NcclRank." + test};
  Outcome outcome;
  outcome.code = launch(options);
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  outcome.results = testing_support::results_of(temp.path(), count);
  return outcome;
}

TEST(NcclBackend, EveryOperation) {
  PENTATRON_NEEDS_GPUS(2);
  for (int count = 2; count <= std::min(tensor::load_cuda_library().gpus, 4); ++count) {
    EXPECT_EQ(run_ranks(count, "Conformance").code, 0) << count << " ranks";
  }
}

TEST(NcclBackend, SendsOfBothDirectionsPassEachOther) {
  PENTATRON_NEEDS_GPUS(2);
  EXPECT_EQ(run_ranks(2, "BothDirections").code, 0);
}

TEST(NcclBackend, ReceivesPostedAheadDoNotHoldTheDevice) {
  PENTATRON_NEEDS_GPUS(2);
  EXPECT_EQ(run_ranks(2, "PostedAhead", {{"PENTATRON_NCCL_TIMEOUT_MS", "20000"}}).code, 0);
}

TEST(NcclBackend, WorksInARecordedStep) {
  PENTATRON_NEEDS_GPUS(2);
  EXPECT_EQ(run_ranks(2, "Recorded").code, 0);
}

TEST(NcclBackend, PeersOfAFailedRankGetItsMessage) {
  PENTATRON_NEEDS_GPUS(2);
  const std::string result =
      run_ranks(2, "FailingPeer", {{"PENTATRON_NCCL_WAY", "poison"}}).results[0];
  EXPECT_TRUE(contains(result, "comm after ") && contains(result, "group 'all', ") &&
              contains(result, "rank 1 failed: a planted error in rank 1"))
      << result;
  EXPECT_LT(seconds_of(result), 3.0) << result;
}

TEST(NcclBackend, ASilentPeerIsATimeout) {
  PENTATRON_NEEDS_GPUS(2);
  const std::string result =
      run_ranks(2, "FailingPeer",
                {{"PENTATRON_NCCL_WAY", "silence"}, {"PENTATRON_NCCL_TIMEOUT_MS", "4000"}})
          .results[0];
  EXPECT_TRUE(contains(result, "comm after ") && contains(result, "all_reduce #") &&
              contains(result, "on rank 0") && contains(result, "no answer within 4000 ms") &&
              contains(result, "still missing: rank 1 (") &&
              contains(result, "--distributed-timeout-minutes"))
      << result;
  EXPECT_LT(seconds_of(result), 9.0) << result;
}

TEST(NcclBackend, ChecksChangeNothing) {
  PENTATRON_NEEDS_GPUS(2);
  EXPECT_EQ(run_ranks(2, "Checked").code, 0);
}

TEST(NcclBackend, WrongOrderIsNamed) {
  PENTATRON_NEEDS_GPUS(2);
  for (const std::string& result : run_ranks(2, "WrongOrder").results) {
    EXPECT_TRUE(contains(result, "comm after ") && contains(result, "group 'all'") &&
                contains(result, "all_reduce(fp32 x 4, sum)") &&
                contains(result, "broadcast(fp32 x 4, root 0)"))
        << result;
    EXPECT_LT(seconds_of(result), 10.0) << result;
  }
}

TEST(NcclBackend, TwoRanksOnOneGpuAreRefused) {
  PENTATRON_NEEDS_GPUS(2);
  for (const std::string& result : run_ranks(2, "SharedGpu").results) {
    EXPECT_TRUE(contains(result, "config") && contains(result, "ranks 0 and 1") &&
                contains(result, "LOCAL_RANK"))
        << result;
  }
}

TEST(NcclBackend, OneRankAlone) {
  PENTATRON_NEEDS_GPUS(1);
  NcclOptions options;
  options.master_port = free_port();
  options.device = tensor::resolve_device("cuda", 0, 1);
  const auto backend = make_nccl_backend(options);
  const auto group = backend->make_group({0}, "all");
  const Tensor t = tensor::ones({4}, DType::Float, options.device);
  all_reduce(*group, t);
  EXPECT_EQ(t.sum().item<float>(), 4.0F);
  EXPECT_EQ(all_gather(*group, t).device(), options.device);
  EXPECT_EQ(all_reduce_value(*group, 2.5), 2.5);
  backend->shutdown();
  options.device = Device("cpu");
  EXPECT_THROW(static_cast<void>(make_nccl_backend(options)), Error);
}

}  // namespace
}  // namespace pentatron::comm
