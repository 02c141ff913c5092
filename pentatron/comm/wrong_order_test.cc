// SPDX-License-Identifier: Apache-2.0
// Calls that do not fit each other are named, not waited for: gloo in processes, and the comparison
// that --check-collectives puts in front of a backend that has none. What threads do is
// ThreadsBackend.MismatchNamesBothCalls.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/comm/backend.h"
#include "pentatron/comm/call_record.h"
#include "pentatron/comm/checked_group.h"
#include "pentatron/comm/conformance_test.h"
#include "pentatron/comm/forwarding_test_support.h"
#include "pentatron/comm/group_base.h"
#include "pentatron/comm/launch.h"
#include "pentatron/comm/launched_rank_test_support.h"

namespace pentatron::comm {
namespace {

using testing_support::seconds_of;

// What the ranks of `comm_worker wrong KIND` say of themselves.
std::vector<std::string> results_of(const std::string& kind, int ranks, const char* timeout_ms) {
  const TempFolder folder("comm");
  LaunchOptions options;
  options.nproc_per_node = ranks;
  options.command = {std::filesystem::read_symlink("/proc/self/exe").parent_path() / "comm_worker",
                     "wrong-" + kind, folder.path()};
  ::setenv("COMM_WORKER_TIMEOUT_MS", timeout_ms, 1);
  EXPECT_EQ(launch(options), exit_code(ErrorKind::kComm)) << kind;
  ::unsetenv("COMM_WORKER_TIMEOUT_MS");
  return testing_support::results_of(folder.path(), ranks);
}

void expect_all(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
  }
}

// Sizes that differ would end the process inside the library, another operation would hang.
TEST(GlooBackend, MismatchNamesBothCalls) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> wrong = {
      {"operation",
       {"'all'", "call #1", "all_reduce(fp32 x 4, sum)", "broadcast(fp32 x 4, root 0)", "rank 1"}},
      {"reduction", {"call #1", "all_reduce(fp32 x 4, sum)", "all_reduce(fp32 x 4, max)"}},
      {"size", {"call #1", "fp32 x 4", "fp32 x 5", "rank 1"}},
      {"empty", {"call #1", "fp32 x 4", "fp32 x 0", "rank 1"}},
      {"dtype", {"call #1", "fp32 x 4", "bf16 x 4", "rank 1"}},
      {"rows",
       {"all_to_all(fp32, rows of 8 bytes) #1", "sends 2 rows to rank 1, which expects 1"}}};
  for (const auto& [kind, parts] : wrong) {
    for (const std::string& result : results_of(kind, 2, "60000")) {
      expect_all(result, parts);
      EXPECT_LT(seconds_of(result), 10.0) << result;
    }
  }
}

TEST(GlooBackend, WrongMessagesAreNamed) {
  for (const char* kind : {"message", "empty-message"}) {
    const std::vector<std::string> results = results_of(kind, 2, "60000");
    const bool empty = std::string(kind) == "empty-message";
    expect_all(results[0], {"recv #0 from rank 1", "receives fp32 x 4",
                            empty ? "sends fp32 x 0" : "sends fp32 x 5"});
    EXPECT_LT(seconds_of(results[0]), 10.0) << results[0];
  }
}

// Operation, group, number of the call and who has not come.
TEST(GlooBackend, MissingMembersAreNamed) {
  const std::vector<std::string> results = results_of("late", 3, "3000");
  for (const int rank : {0, 2}) {
    const std::string& result = results[static_cast<std::size_t>(rank)];
    expect_all(result, {"group 'all', all_reduce #1 on rank " + std::to_string(rank)});
    // One of the two was first and told the other.
    expect_all(result, {"no answer within 3000 ms", "still missing: rank 1 (1 calls",
                        "--distributed-timeout-minutes"});
    EXPECT_EQ(result.find("rank 0 ("), std::string::npos) << result;
    EXPECT_EQ(result.find("rank 2 ("), std::string::npos) << result;
  }
}

// Every group of a backend, compared over groups of its own.
class CheckedBackend final : public testing_support::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

 private:
  std::unique_ptr<Group> wrap(std::unique_ptr<Group> group) override {
    auto calls = real().make_group(group->world_ranks(), group->name() + "/calls");
    return make_checked_group(std::move(group), std::move(calls), CheckedDevices::kAll);
  }
};

TEST(CheckedGroup, EveryOperation) {
  for (const std::int64_t world : {1, 2, 3}) {
    run_threads({.world_size = world, .threads_per_rank = 1}, [](Backend& backend) {
      CheckedBackend checked(backend);
      conformance::run(checked);
    });
  }
}

// The real group is one that takes everything and compares nothing.
TEST(CheckedGroup, NamesBothCalls) {
  using Call = std::function<void(Group&)>;
  const Tensor t = tensor::ones({4}, DType::Float);
  const auto error_of = [](const Call& first, const Call& second) {
    std::string text;
    try {
      run_threads({.world_size = 2, .threads_per_rank = 1}, [&](Backend& backend) {
        const auto group =
            make_checked_group(make_local_group("all", {0, 1}, backend.rank(), 2),
                               backend.make_group({0, 1}, "all/calls"), CheckedDevices::kAll);
        group->barrier();
        backend.rank() == 0 ? first(*group) : second(*group);
      });
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kComm);
      text = error.what();
    }
    return text;
  };
  const Call reduce = [t](Group& g) { g.all_reduce(t, ReduceOp::kSum)->wait(); };
  const Call rooted = [t](Group& g) { g.broadcast(t, 1)->wait(); };
  expect_all(error_of(reduce, rooted),
             {"'all'", "call #1", "all_reduce(fp32 x 4, sum)", "broadcast(fp32 x 4, root 1)"});
  const Call larger = [](Group& g) {
    g.all_reduce(tensor::ones({5}, DType::Float), ReduceOp::kSum)->wait();
  };
  expect_all(error_of(reduce, larger), {"fp32 x 4", "fp32 x 5", "rank 0 called", "rank 1 called"});
  const auto exchange = [](std::vector<std::int64_t> out, std::vector<std::int64_t> in) -> Call {
    return [=](Group& g) {
      g.all_to_all(tensor::ones({out[0] + out[1]}, DType::Float),
                   tensor::ones({in[0] + in[1]}, DType::Float), out, in)
          ->wait();
    };
  };
  expect_all(error_of(exchange({1, 2}, {1, 3}), exchange({2, 1}, {2, 1})),
             {"rank 0 sends 3 rows to rank 1, which expects 2"});
  expect_all(error_of([t](Group& g) { g.send(t, 1)->wait(); },
                      [](Group& g) { g.recv(tensor::ones({6}, DType::Float), 0)->wait(); }),
             {"'all'", "rank 0 to 1", "receives fp32 x 6", "sends fp32 x 4"});
  EXPECT_EQ(error_of(reduce, reduce), "");
}

TEST(CallRecord, FitsInItsBytes) {
  for (const int members : {1, 2, 8}) {
    const CallRecord record{
        .text = std::string(500, 'x'),
        .number = 3,
        .sent = std::vector<std::int64_t>(static_cast<std::size_t>(members), 1),
        .received = std::vector<std::int64_t>(static_cast<std::size_t>(members), 1)};
    const std::string bytes = encode(record, members);
    EXPECT_EQ(static_cast<std::int64_t>(bytes.size()), record_bytes(members));
    std::string all;
    std::vector<std::int64_t> ranks;
    for (int m = 0; m < members; ++m) {
      all += bytes;
      ranks.push_back(10 + m);
    }
    EXPECT_EQ(disagreement(all, "g", ranks, 0), "");
  }
  EXPECT_EQ(static_cast<std::int64_t>(encode_note(std::string(500, 'x')).size()), kNoteBytes);
  for (const char* text : {"fp32 x 4", "bf16 x 1048576", ""}) {
    EXPECT_GE(tag_of(text), 1);
    EXPECT_EQ(disagreement_of_note(encode_note(text), text), "");
  }
  EXPECT_NE(tag_of("fp32 x 4"), tag_of("fp32 x 5"));
}

}  // namespace
}  // namespace pentatron::comm
