// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/conformance_test.h"
#include "pentatron/comm/nccl_backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/tensor/device.h"

namespace pentatron::comm {
namespace {

std::vector<std::int64_t> everyone(const Backend& backend) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < backend.world_size(); ++rank) ranks.push_back(rank);
  return ranks;
}

class ThreadsConformance : public testing::TestWithParam<std::int64_t> {};

TEST_P(ThreadsConformance, EveryOperation) {
  ThreadsOptions options;
  options.world_size = GetParam();
  options.timeout = std::chrono::seconds(60);
  std::atomic<int> finished{0};
  run_threads(options, [&](Backend& backend) {
    conformance::run(backend);
    backend.shutdown();
    ++finished;
  });
  EXPECT_EQ(finished.load(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(Worlds, ThreadsConformance, testing::Values(1, 2, 3, 4));

TEST(SingleBackend, EveryOperation) {
  const auto backend = make_single_backend();
  EXPECT_NO_THROW(conformance::run(*backend));
}

// Runs a body on n ranks that fails; returns the error that run_threads rethrows.
Error failure_of(std::int64_t world, const std::function<void(Backend&, Group&)>& body,
                 std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  try {
    run_threads({.world_size = world, .threads_per_rank = 1, .timeout = timeout},
                [&](Backend& backend) {
                  const auto group = backend.make_group(everyone(backend), "all");
                  body(backend, *group);
                });
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorKind::kInternal, "no error");
}

void expect_parts(const Error& error, ErrorKind kind, const std::vector<std::string>& parts) {
  EXPECT_EQ(error.kind(), kind) << error.what();
  for (const std::string& part : parts) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
        << "'" << part << "' is not in: " << error.what();
  }
}

TEST(ThreadsBackend, ReducesInOrderOfRank) {
  run_threads({.world_size = 4, .threads_per_rank = 1}, [](Backend& backend) {
    const auto group = backend.make_group(everyone(backend), "all");
    for (int turn = 0; turn < 20; ++turn) {
      // ((1e8 + 1) - 1e8) + 0.5: the 1 is lost in fp32 in this order, another order keeps it.
      const float values[] = {1e8F, 1.0F, -1e8F, 0.5F};
      const Tensor t = tensor::full({3000}, values[backend.rank()], DType::Float);
      all_reduce(*group, t);
      conformance::require_equal(
          t, [](std::int64_t) { return 0.5; }, "sum in order of rank");
    }
  });
}

// fp16 holds the average of what it cannot hold the sum of; whole numbers are cut towards zero.
TEST(ThreadsBackend, AveragesOfAllDtypes) {
  run_threads({.world_size = 4, .threads_per_rank = 1}, [](Backend& backend) {
    const auto group = backend.make_group(everyone(backend), "all");
    const Tensor large = tensor::full({5}, 60000.0, DType::Half);
    all_reduce(*group, large, ReduceOp::kAverage);
    conformance::require_equal(
        large, [](std::int64_t) { return 60000.0; }, "average of large values");
    const Tensor whole = tensor::full({5}, backend.rank() == 0 ? -7.0 : 0.0, DType::Long);
    all_reduce(*group, whole, ReduceOp::kAverage);
    conformance::require_equal(
        whole, [](std::int64_t) { return -1.0; }, "average of whole numbers");
  });
}

TEST(ThreadsBackend, MismatchNamesBothCalls) {
  expect_parts(failure_of(2,
                          [](Backend& backend, Group& group) {
                            all_reduce(group, tensor::ones({backend.rank() + 4}, DType::Float));
                          }),
               ErrorKind::kComm,
               {"'all'", "all_reduce #0", "fp32 x 4", "fp32 x 5", "rank 0", "rank 1"});
  expect_parts(failure_of(2,
                          [](Backend& backend, Group& group) {
                            all_reduce(group,
                                       tensor::ones({4}, backend.rank() == 0 ? DType::Float
                                                                             : DType::BFloat16));
                          }),
               ErrorKind::kComm, {"fp32 x 4", "bf16 x 4"});
  expect_parts(failure_of(3,
                          [](Backend& backend, Group& group) {
                            group.barrier();
                            const Tensor t = tensor::ones({4}, DType::Float);
                            if (backend.rank() == 2) {
                              group.broadcast(t, 0)->wait();
                            } else {
                              all_reduce(group, t);
                            }
                          }),
               ErrorKind::kComm,
               {"#1", "all_reduce(fp32 x 4, sum)", "broadcast(fp32 x 4, root 0)"});
  expect_parts(failure_of(2,
                          [](Backend& backend, Group& group) {
                            const Tensor t = tensor::ones({backend.rank() + 4}, DType::Float);
                            const WorkPtr work =
                                backend.rank() == 0 ? group.send(t, 1) : group.recv(t, 0);
                            work->wait();
                          }),
               ErrorKind::kComm, {"fp32 x 4", "fp32 x 5", "rank 0 to 1"});
  expect_parts(failure_of(2,
                          [](Backend& backend, Group& group) {
                            const Tensor t = tensor::ones({4, 2}, DType::Float);
                            std::vector<std::int64_t> in{1, 3};
                            const Tensor out = tensor::empty({2, 2}, DType::Float);
                            group.all_to_all(out, t, {1, 1}, in)->wait();
                          }),
               ErrorKind::kComm, {"sends 3 rows to rank 1, which expects 1"});
  expect_parts(failure_of(3,
                          [](Backend& backend, Group& group) {
                            const auto other = backend.make_group(
                                backend.rank() == 0 ? std::vector<std::int64_t>{0, 1}
                                                    : std::vector<std::int64_t>{0, 1, 2},
                                "sub");
                            other->barrier();
                          }),
               ErrorKind::kComm, {"'sub'", "[0, 1]", "[0, 1, 2]"});
}

TEST(ThreadsBackend, RanksThatThrowPoisonTheirPeers) {
  std::atomic<int> told{0};
  const Error error = failure_of(4, [&](Backend& backend, Group& group) {
    const Tensor pending = tensor::empty({8}, DType::Float);
    // A receive that never comes must not hold up the rank that fails.
    const WorkPtr never = group.recv(pending, (backend.rank() + 1) % 4);
    group.barrier();
    if (backend.rank() == 2) PENTATRON_THROW(kData, "token 7 is above the vocabulary");
    try {
      all_reduce(group, tensor::ones({4}, DType::Float));
    } catch (const Error& peer) {
      expect_parts(peer, ErrorKind::kComm,
                   {"group 'all'", "all_reduce #1", "rank 2 failed", "token 7 is above"});
      ++told;
      throw;
    }
  });
  EXPECT_EQ(told.load(), 3);
  expect_parts(error, ErrorKind::kData, {"token 7 is above the vocabulary"});
}

TEST(ThreadsBackend, ForeignExceptionsAreRethrownAsTheyAre) {
  EXPECT_THROW(run_threads({.world_size = 2, .threads_per_rank = 1},
                           [](Backend& backend) {
                             const auto group = backend.make_group(everyone(backend), "all");
                             if (backend.rank() == 1) throw std::length_error("planted");
                             group->barrier();
                           }),
               std::length_error);
}

TEST(ThreadsBackend, TimeoutAndEndedRanksAreNamed) {
  expect_parts(
      failure_of(
          3,
          [](Backend& backend, Group& group) {
            if (backend.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
            group.barrier();
          },
          std::chrono::milliseconds(100)),
      ErrorKind::kComm,
      {"barrier #0", "no answer within 100 ms", "rank 1", "--distributed-timeout-minutes"});
  expect_parts(failure_of(3,
                          [](Backend& backend, Group& group) {
                            if (backend.rank() != 1) group.barrier();
                          }),
               ErrorKind::kComm, {"barrier #0", "rank 1 ended without joining"});
  expect_parts(failure_of(2,
                          [](Backend& backend, Group& group) {
                            if (backend.rank() == 0) backend.poison("gives up");
                            if (backend.rank() == 1) group.barrier();
                          }),
               ErrorKind::kComm, {"rank 0 failed: gives up"});
}

TEST(ThreadsBackend, WrongArgumentsAreRefused) {
  const auto refuse = [](const std::string& part, const std::function<void(Group&)>& call) {
    expect_parts(failure_of(2, [&](Backend&, Group& group) { call(group); }), ErrorKind::kInternal,
                 {part});
  };
  const auto t = [](std::int64_t n) { return tensor::ones({n}, DType::Float); };
  refuse("not contiguous", [&](Group& g) {
    all_reduce(g, tensor::ones({4, 4}, DType::Float).t());
  });
  refuse("is not 2 times", [&](Group& g) { g.all_gather(t(7), t(4))->wait(); });
  refuse("is not 2 times", [&](Group& g) { g.reduce_scatter(t(4), t(7), ReduceOp::kSum)->wait(); });
  refuse("do not divide by 2", [&](Group& g) { static_cast<void>(reduce_scatter(g, t(3))); });
  refuse("do not cut the 4 rows", [&](Group& g) {
    g.all_to_all(t(4), t(4), {2, 2}, {2, 3})->wait();
  });
  refuse("do not cut the 4 rows", [&](Group& g) {
    g.all_to_all(t(4), t(4), {5, -1}, {2, 2})->wait();
  });
  refuse("this rank itself", [&](Group& g) { g.send(t(4), g.rank())->wait(); });
  refuse("member 2 of 2", [&](Group& g) { g.broadcast(t(4), 2)->wait(); });
  expect_parts(
      failure_of(2, [](Backend&, Group& g) { all_reduce(g, tensor::ones({2}, DType::Bool)); }),
      ErrorKind::kComm, {"cannot reduce", "bool"});
}

TEST(FakeBackend, EveryOperation) {
  for (const std::int64_t world : {1, 2, 3, 5, 8}) {
    for (std::int64_t rank = 0; rank < world; ++rank) {
      const auto backend = make_fake_backend(rank, world);
      EXPECT_NO_THROW(conformance::run(*backend, {.peers = conformance::Peers::kLikeThisRank}))
          << "rank " << rank << " of " << world;
    }
  }
  // The same expectations of a world without peers.
  EXPECT_NO_THROW(
      conformance::run(*make_single_backend(), {.peers = conformance::Peers::kLikeThisRank}));
  // And they can fail: the fake is no world of real peers.
  const auto backend = make_fake_backend(1, 2);
  EXPECT_THROW(conformance::run(*backend), std::runtime_error);
}

TEST(FakeBackend, ActsAsIfAllMembersHeldThisRanksData) {
  const auto backend = make_fake_backend(5, 8);
  const auto group = backend->make_group({1, 5, 7}, "three");
  EXPECT_EQ(group->rank(), 1);
  for (DType dtype : {DType::Double, DType::Float, DType::BFloat16, DType::Long}) {
    const auto mine = [](std::int64_t i) { return conformance::value_at(5, i); };
    const Tensor in = conformance::filled({6, 2}, dtype, Device("cpu"), mine);
    conformance::require_equal(
        all_gather(*group, in), [&](std::int64_t i) { return mine(i % 12); }, "all_gather");
    conformance::require_equal(
        reduce_scatter(*group, in), [&](std::int64_t i) { return 3 * mine(4 + i); },
        "reduce_scatter");
    const Tensor out = tensor::empty({4, 2}, dtype);
    group->all_to_all(out, in, {1, 2, 1}, {1, 2, 3})->wait();
    // Row 1 and 2 of `in` are what this rank sends to itself.
    const std::int64_t rows[] = {1, 1, 2, 1};
    conformance::require_equal(
        out, [&](std::int64_t i) { return mine(rows[i / 2] * 2 + i % 2); }, "all_to_all");
    all_reduce(*group, in, ReduceOp::kMax);
    conformance::require_equal(in, mine, "max");
    all_reduce(*group, in);
    conformance::require_equal(
        in, [&](std::int64_t i) { return 3 * mine(i); }, "sum");
    all_reduce(*group, in, ReduceOp::kAverage);
    conformance::require_equal(
        in, [&](std::int64_t i) { return 3 * mine(i); }, "average");
    const auto factor = [&](std::int64_t i) { return conformance::factor_at(dtype, 5, i); };
    const Tensor factors = conformance::filled({6, 2}, dtype, Device("cpu"), factor);
    all_reduce(*group, factors, ReduceOp::kProduct);
    conformance::require_equal(
        factors, [&](std::int64_t i) { return std::pow(factor(i), 3); }, "product");
    group->recv(in, 0)->wait();
    conformance::require_equal(
        in, [](std::int64_t) { return 0.0; }, "recv");
  }
  EXPECT_EQ(all_gather_bytes(*group, "xyz"), (std::vector<std::string>{"xyz", "xyz", "xyz"}));
  group->send(tensor::ones({2}, DType::Float), 2)->wait();
  group->barrier();
  ParallelContext context(*backend, RankGrid({{"tp", 2, {}}, {"dp", 2, {}}, {"pp", 2, {}}}));
  EXPECT_EQ(context.label(), "rank 5 (tp 1, dp 0, pp 1)");
  EXPECT_THROW(static_cast<void>(make_fake_backend(8, 8)), Error);
}

TEST(ParallelContext, GroupsFollowTheGrid) {
  run_threads({.world_size = 8, .threads_per_rank = 1}, [](Backend& backend) {
    ParallelContext context(backend,
                            RankGrid({{"tp", 4, {{"tp_kv", 2}, {"tp_rep", 2}}}, {"pp", 2, {}}}));
    const std::int64_t rank = backend.rank();
    for (const std::vector<std::string>& axes : {std::vector<std::string>{"tp"},
                                                 {"tp_kv"},
                                                 {"tp_rep"},
                                                 {"pp"},
                                                 {"pp", "tp"},
                                                 {"tp%2"},
                                                 {"tp/2", "pp"},
                                                 {"tp_rep", "pp"}}) {
      EXPECT_EQ(context.group(axes).world_ranks(), context.grid().group_of(rank, axes));
    }
    EXPECT_EQ(&context.group({"pp", "tp"}), &context.group({"tp", "pp"}));
    EXPECT_EQ(context.is_first_stage(), rank < 4);
    EXPECT_EQ(context.is_last_stage(), rank >= 4);
    EXPECT_EQ(context.size("tp_rep"), 2);
    EXPECT_EQ(context.coordinate("tp_kv"), rank % 4 / 2);
    EXPECT_EQ(all_reduce_value(context.group("tp_rep"), static_cast<double>(rank)),
              2.0 * static_cast<double>(rank / 2 * 2) + 1);
    EXPECT_THROW(static_cast<void>(context.group("dp")), Error);
  });
  const auto backend = make_fake_backend(1, 3);
  ParallelContext middle(*backend, RankGrid({{"pp", 3, {}}}));
  EXPECT_FALSE(middle.is_first_stage() || middle.is_last_stage());
  EXPECT_THROW(ParallelContext(*backend, RankGrid({{"tp", 2, {}}})), Error);
}

// 8 ranks: dense tp 2 x cp 2 x dp 1 x pp 2, experts etp 1 x ep 2 x edp 2 x pp 2, one backend.
TEST(ParallelContext, DenseAndExpertGroupsLiveSideBySide) {
  run_threads({.world_size = 8, .threads_per_rank = 1}, [](Backend& backend) {
    const Grids grids = make_grids(
        {.world = 8, .tensor = 2, .context = 2, .pipeline = 2, .expert = 2, .expert_tensor = 1});
    ParallelContext context(backend, grids);
    const std::int64_t rank = backend.rank();
    for (const char* axis : {"tp", "cp", "dp", "pp", "etp", "ep", "edp", "cp%2", "edp_inner"}) {
      const RankGrid& grid = grids.with({axis});
      EXPECT_EQ(context.group(axis).world_ranks(), grid.group_of(rank, {axis})) << axis;
      EXPECT_EQ(context.coordinate(axis), grid.coordinate(rank, axis)) << axis;
    }
    // Rank = tp + 2 cp + 4 pp in the one, ep + 2 edp + 4 pp in the other.
    EXPECT_EQ(context.group("ep").world_ranks(),
              (std::vector<std::int64_t>{rank / 2 * 2, rank / 2 * 2 + 1}));
    EXPECT_EQ(context.group("edp").world_ranks(),
              (std::vector<std::int64_t>{rank % 2 + rank / 4 * 4, rank % 2 + rank / 4 * 4 + 2}));
    const auto sum_over = [&](Group& group) {
      return all_reduce_value(group, static_cast<double>(rank));
    };
    EXPECT_EQ(sum_over(context.group("ep")), static_cast<double>(rank / 2 * 4 + 1));
    EXPECT_EQ(sum_over(context.group(replica_axes(GridKind::kExpert))),
              static_cast<double>(2 * (rank % 2 + rank / 4 * 4) + 2));
    EXPECT_EQ(sum_over(context.replicas()), static_cast<double>(2 * (rank % 2 + rank / 4 * 4) + 2));
    EXPECT_EQ(context.model().size(), 4);
    EXPECT_EQ(context.data_rank(), 0);
    EXPECT_EQ(context.num_data_ranks(), 1);
    EXPECT_THROW(static_cast<void>(context.group({"tp", "ep"})), Error);
  });
}

TEST(TieGroups, AreTheHoldersOfEachName) {
  run_threads({.world_size = 8, .threads_per_rank = 1}, [](Backend& backend) {
    ParallelContext context(backend, make_grids({.world = 8, .tensor = 2, .pipeline = 4}));
    const std::int64_t tp = context.coordinate("tp");
    const std::int64_t stage = context.coordinate("pp");
    // Embeddings at both ends and on the third stage, a pair of others on two stages, one alone.
    const std::vector<std::vector<std::string>> held = {
        {"word", "alone"}, {"shared.b", "shared.a"}, {"word", "shared.a", "shared.b"}, {"word"}};
    const TieGroups ties(context, "pp", held.at(static_cast<std::size_t>(stage)));
    using Names = std::vector<std::string>;
    std::map<Names, std::vector<std::int64_t>> found;
    for (const TieGroups::Tie& tie : ties.ties()) found[tie.names] = tie.group->world_ranks();
    std::map<Names, std::vector<std::int64_t>> expected;
    if (stage != 1) expected[{"word"}] = {tp, tp + 4, tp + 6};
    if (stage == 1 || stage == 2) expected[{"shared.a", "shared.b"}] = {tp + 2, tp + 4};
    EXPECT_EQ(found, expected);
    for (const TieGroups::Tie& tie : ties.ties()) {
      EXPECT_EQ(all_reduce_value(*tie.group, 1), static_cast<double>(tie.group->size()));
    }
    EXPECT_TRUE(TieGroups(context, "cp", {"word"}).ties().empty());
    EXPECT_TRUE(TieGroups(context, "no such axis", {"word"}).ties().empty());
    EXPECT_THROW(TieGroups(context, "dp", {"word", "word"}), Error);
  });
}

// The default tests are shown no GPU.
TEST(NcclBackend, IsRefusedWithTheReasonWhereNoGpuIs) {
  try {
    static_cast<void>(make_nccl_backend({}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    const std::string message = error.what();
    EXPECT_NE(message.find(tensor::load_cuda_library().reason), std::string::npos) << message;
    EXPECT_NE(message.find("--distributed-backend gloo"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace pentatron::comm
