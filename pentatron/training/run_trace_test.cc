// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run_trace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "pentatron/base/temp_folder.h"
#include "pentatron/base/timer.h"
#include "pentatron/comm/faulty_backend.h"
#include "pentatron/pipeline_parallel/executor.h"
#include "pentatron/pipeline_parallel/make_schedule.h"
#include "pentatron/pipeline_parallel/transport.h"
#include "pentatron/training/traced_step_test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

// Spans of one step on every rank.
std::map<std::int64_t, std::vector<TraceSpan>> traced_step(const config::RunConfig& config) {
  std::map<std::int64_t, std::vector<TraceSpan>> spans;
  std::mutex mutex;
  with_engine(config, [&](Engine& engine) {
    TracedStep step(engine);
    const std::lock_guard lock(mutex);
    spans[engine.context().world().rank()] = step.trace.take();
  });
  return spans;
}

std::vector<TraceSpan> lane_of(const std::vector<TraceSpan>& spans, std::string_view lane) {
  std::vector<TraceSpan> chosen;
  for (const TraceSpan& span : spans) {
    if (span.lane == lane) chosen.push_back(span);
  }
  return chosen;
}

// What was done, in the order in which it was done, is the list that the schedule made: also its W
// actions in their slots.
TEST(RunTrace, ExecutedOrderIsTheSchedules) {
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1", "zb-auto"}) {
    const config::RunConfig config = tiny_config(
        {.pp = 2}, [&](config::RunConfig& c) { c.parallel.pipeline_schedule = schedule; });
    const auto lists = pipeline_parallel::make_schedule(
        pipeline_parallel::schedule_choice(config.model, config.parallel),
        {.num_ranks = 2, .num_micro_batches = 4});
    const auto spans = traced_step(config);
    ASSERT_EQ(spans.size(), 2U);
    for (const auto& [rank, all] : spans) {
      const std::vector<TraceSpan> done = lane_of(all, pipeline_parallel::kScheduleLane);
      const auto& list = lists.at(static_cast<std::size_t>(rank));
      ASSERT_EQ(done.size(), list.size()) << schedule << " rank " << rank;
      std::int64_t weights = 0;
      for (std::size_t i = 0; i < list.size(); ++i) {
        EXPECT_EQ(done[i].name, pipeline_parallel::to_string(list[i].kind)) << schedule << i;
        EXPECT_EQ(done[i].micro_batch, list[i].micro_batch) << schedule << i;
        EXPECT_EQ(done[i].chunk, list[i].chunk) << schedule << i;
        if (i > 0) EXPECT_GE(done[i].begin_ns, done[i - 1].end_ns) << schedule << i;
        weights += list[i].kind == pipeline_parallel::ActionKind::kBackwardWeight ? 1 : 0;
      }
      EXPECT_EQ(weights, std::string(schedule).starts_with("zb") ? 4 : 0) << schedule;
    }
  }
}

// Messages are under way while a rank computes: on each rank a forward or backward lies inside of
// one. The kernels of two GPUs are program_gpu_test GpuProgram.MessagesOverlapWithCompute.
TEST(RunTrace, MessagesGoBesideCompute) {
  const config::RunConfig config = tiny_config({.pp = 2});
  for (const auto& [rank, all] : traced_step(config)) {
    const std::vector<TraceSpan> messages = lane_of(all, pipeline_parallel::kMessageLane);
    ASSERT_EQ(messages.size(), 4U) << "one a micro-batch";
    const std::vector<TraceSpan> actions = lane_of(all, pipeline_parallel::kScheduleLane);
    int inside = 0;
    for (const TraceSpan& message : messages) {
      EXPECT_EQ(message.name, rank == 0 ? "recv-backward" : "recv-forward");
      EXPECT_GT(message.bytes, 0);
      inside += static_cast<int>(std::count_if(actions.begin(), actions.end(), [&](const auto& a) {
        return (a.name == "forward" || a.name == "backward") && a.begin_ns > message.begin_ns &&
               a.end_ns < message.end_ns;
      }));
    }
    EXPECT_GE(inside, 3) << "rank " << rank;
  }
}

// Every unit's forward and backward once a micro-batch; backward in the reverse order.
TEST(RunTrace, UnitsAreNamed) {
  const config::RunConfig config = tiny_config();
  const auto all = traced_step(config);
  std::vector<std::string> first_micro_batch;
  std::map<std::string, int> times;
  for (const TraceSpan& span : lane_of(all.at(0), kUnitLane)) {
    if (first_micro_batch.size() < 8) first_micro_batch.push_back(span.name);
    ++times[span.name];
  }
  EXPECT_EQ(first_micro_batch,
            (std::vector<std::string>{"forward embedding", "forward decoder.layers.0",
                                      "forward decoder.layers.1", "forward head", "backward head",
                                      "backward decoder.layers.1", "backward decoder.layers.0",
                                      "backward embedding"}));
  ASSERT_EQ(times.size(), 8U);
  for (const auto& [name, count] : times) EXPECT_EQ(count, kGlobalBatch / 2) << name;
}

// A reduction of gradients that was started, and how often the backward of each unit had ended
// then.
struct StartedReduction {
  std::int64_t elements = 0;
  std::vector<int> ended;  // by unit
};

struct ReductionsOfAStep {
  std::vector<distributed::FlatBucket> buckets;
  std::vector<StartedReduction> started;
  std::vector<TraceSpan> spans;
};

using comm::testing_support::Collective;
using comm::testing_support::Fault;
using comm::testing_support::Harm;
constexpr std::array kUnits = {"embedding", "decoder.layers.0", "decoder.layers.1", "head"};
constexpr int kMicroBatches = kGlobalBatch / 2 / 2;  // of one of two data-parallel ranks
constexpr std::int64_t kLeastElements = 64;          // counts and norms are smaller
const Fault kNoFault{.group = "no such group"};

// The second step of rank 0 of two, over a backend with this fault. By the order of its events: the
// trace has a span when a unit's backward has ended.
ReductionsOfAStep reductions_of_a_step(const config::RunConfig& config, Fault fault) {
  ReductionsOfAStep step;
  comm::run_threads({.world_size = 2, .threads_per_rank = 1}, [&](comm::Backend& real) {
    Trace trace;
    Timers timers{0};
    timers.set_trace(&trace);
    Fault own = fault;
    if (real.rank() == 0) {
      own.heard = [&](Collective, const std::string&, const Tensor& whole) {
        if (!trace.recording() || whole.numel() < kLeastElements) return;
        StartedReduction& reduction = step.started.emplace_back();
        reduction.elements = whole.numel();
        for (const char* unit : kUnits) {
          reduction.ended.push_back(static_cast<int>(
              std::count_if(trace.spans().begin(), trace.spans().end(), [&](const auto& span) {
                return span.lane == kUnitLane && span.name == std::string("backward ") + unit;
              })));
        }
      };
    }
    comm::testing_support::FaultyBackend backend(real, own);
    comm::ParallelContext context(backend, comm::make_grids(config.parallel));
    Engine engine(config, context, kCpu);
    engine.set_timers(&timers);
    (void)train_steps(engine, 0, 1);
    trace.set_recording(true);
    (void)train_steps(engine, 1, 2);
    trace.set_recording(false);
    if (real.rank() != 0) return;
    step.buckets = engine.optimizer().store(0).layout().buckets();
    step.spans = trace.take();
  });
  return step;
}

// Empty when the buckets are reduced in their order, each before the backward of any unit ahead of
// its own has ended in the last micro-batch.
std::string overlap_problem(const ReductionsOfAStep& step) {
  if (step.started.size() != step.buckets.size()) {
    return fmt::format("{} reductions of {} buckets", step.started.size(), step.buckets.size());
  }
  for (std::size_t b = 0; b < step.buckets.size(); ++b) {
    const StartedReduction& reduction = step.started[b];
    if (reduction.elements != step.buckets[b].size()) return fmt::format("bucket {}: order", b);
    for (int unit = 0; unit < step.buckets[b].units.back(); ++unit) {
      if (reduction.ended.at(static_cast<std::size_t>(unit)) < kMicroBatches) continue;
      return fmt::format("bucket {} is reduced after the backward of {}", b,
                         kUnits.at(static_cast<std::size_t>(unit)));
    }
  }
  return {};
}

config::RunConfig reducing_config(bool sharded, std::int64_t bucket_size) {
  return tiny_config({.dp = 2, .sharded = sharded}, [&](config::RunConfig& c) {
    c.model.untie_embeddings_and_output_weights = true;
    c.parallel.ddp_bucket_size = bucket_size;
  });
}

// Reductions overlap with backward: the first is started before the first unit's backward, which is
// the last, has ended; and so is each that can be.
TEST(RunTrace, FirstReductionStartsBeforeBackwardEnds) {
  for (const bool sharded : {false, true}) {
    const ReductionsOfAStep step = reductions_of_a_step(reducing_config(sharded, 2000), kNoFault);
    EXPECT_GT(step.buckets.size(), 3U);
    EXPECT_EQ(overlap_problem(step), "") << (sharded ? "sharded" : "");
    // The head's, before any layer's backward in that micro-batch.
    EXPECT_EQ(step.started.at(0).ended.at(2), kMicroBatches - 1);
    const std::string name = sharded ? "reduce-scatter bucket" : "all-reduce bucket";
    std::size_t spans = 0;
    for (const TraceSpan& span : lane_of(step.spans, "collectives")) {
      if (!span.name.starts_with(name)) continue;
      EXPECT_GT(span.bytes, 0);
      ++spans;
    }
    EXPECT_EQ(spans, step.buckets.size());
  }
}

// That test sees a step that reduces when backward is over: reductions that start when they are
// waited for, and a bucket that holds everything.
TEST(RunTrace, LateReductionsAreSeen) {
  for (const bool sharded : {false, true}) {
    const Fault late{.collective = sharded ? Collective::kReduceScatter : Collective::kAllReduce,
                     .group = "dp:",
                     .harm = Harm::kDefer,
                     .least_elements = kLeastElements};
    EXPECT_NE(overlap_problem(reductions_of_a_step(reducing_config(sharded, 2000), late)), "");
    const ReductionsOfAStep one = reductions_of_a_step(reducing_config(sharded, 1 << 20), kNoFault);
    EXPECT_EQ(one.buckets.size(), 1U);
    EXPECT_EQ(one.started.at(0).ended.at(1), kMicroBatches) << "after all layers";
  }
}

TEST(RunTrace, KernelsBelongToTheInnermostUnitThatLaunchedThem) {
  const std::vector<TraceSpan> host = {
      {.lane = "phases", .name = "forward-backward", .begin_ns = 0, .end_ns = 100},
      {.lane = std::string(kUnitLane), .name = "forward a", .begin_ns = 22, .end_ns = 28},
      {.lane = std::string(kUnitLane), .name = "backward a", .begin_ns = 20, .end_ns = 40}};
  const std::vector<tensor::DeviceSpan> device = {
      {.name = "k", .stream = 7, .begin_ns = 50, .end_ns = 60, .launched_ns = 21},
      {.name = "k", .stream = 7, .begin_ns = 60, .end_ns = 61, .launched_ns = 22},
      {.name = "k", .stream = 7, .begin_ns = 61, .end_ns = 62, .launched_ns = 30},
      {.name = "k", .stream = 13, .begin_ns = 62, .end_ns = 63, .launched_ns = 40},
      {.name = "k", .stream = 13, .begin_ns = 63, .end_ns = 64, .launched_ns = 0},
      {.name = "k", .stream = 13, .begin_ns = 64, .end_ns = 65, .launched_ns = 10}};
  const std::vector<TraceSpan> all = with_device_spans(host, device);
  ASSERT_EQ(all.size(), 9U);
  const std::vector<std::string> units = {"backward a", "forward a", "backward a", "", "", ""};
  for (std::size_t i = 0; i < units.size(); ++i) EXPECT_EQ(all[3 + i].unit, units[i]) << i;
  EXPECT_EQ(all[3].lane, "GPU stream 7");
  EXPECT_EQ(all[8].lane, "GPU stream 13");
  EXPECT_EQ(all[8].begin_ns, 64);
}

TEST(RunTrace, WritesTheAskedIterationsOfTheAskedRanks) {
  const TempFolder folder;
  config::RunConfig config = tiny_config();
  config.training.trace = (folder.path() / "traces").string();
  config.training.profile_step_start = 1;
  config.training.profile_step_end = 3;
  config.training.profile_ranks = {"0", "2"};
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    RunTrace run(config, rank, kCpu);
    EXPECT_EQ(run.trace() != nullptr, rank != 1);
    for (std::int64_t completed = 0; completed < 4; ++completed) {
      run.before_iteration(completed);
      { const TraceScope scope(run.trace(), "phases", "iteration " + std::to_string(completed)); }
      run.after_iteration(completed + 1);
    }
    run.finish();
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "traces/rank-00001.json"));
  for (const char* name : {"rank-00000.json", "rank-00002.json"}) {
    const TraceFile file = read_trace(folder.path() / "traces" / name);
    ASSERT_EQ(file.spans.size(), 2U);
    EXPECT_EQ(file.spans[0].name, "iteration 1");
    EXPECT_EQ(file.spans[1].name, "iteration 2");
  }
}

}  // namespace
}  // namespace pentatron::training
