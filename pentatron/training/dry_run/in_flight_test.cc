// SPDX-License-Identifier: Apache-2.0
// Activations in flight: what a traced step shows against the simulator and the planned bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "pentatron/base/timer.h"
#include "pentatron/base/trace_counter.h"
#include "pentatron/pipeline_parallel/held_activations.h"
#include "pentatron/pipeline_parallel/make_schedule.h"
#include "pentatron/pipeline_parallel/simulate.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/training/dry_run/activations.h"
#include "pentatron/training/dry_run/test_support.h"
#include "pentatron/training/traced_step_test_support.h"

namespace pentatron::training::dry_run {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

constexpr int kMicroBatches = 4;
constexpr std::int64_t kMicroBatchSize = 16;

// Values of the counter on every rank in the second step.
std::map<std::int64_t, std::vector<double>> counted(const config::RunConfig& config) {
  const tensor::MemoryMeter meter;
  std::map<std::int64_t, std::vector<double>> values;
  std::mutex mutex;
  with_engine(config, [&](Engine& engine) {
    const TracedStep step(engine);
    const std::lock_guard lock(mutex);
    std::vector<double>& mine = values[engine.context().world().rank()];
    for (const TraceSpan& span : step.trace.spans()) {
      if (span.lane != kCounterLane) continue;
      EXPECT_EQ(span.name, pipeline_parallel::kInFlightCounter);
      mine.push_back(static_cast<double>(span.bytes));
    }
  });
  return values;
}

// The same from the list and the planned bytes of its chunks.
std::vector<double> played(const pipeline_parallel::ActionList& list,
                           const std::vector<StageActivations>& chunks) {
  using pipeline_parallel::ActionKind;
  const bool splits = std::any_of(list.begin(), list.end(), [](const auto& action) {
    return action.kind == ActionKind::kBackwardWeight;
  });
  std::vector<double> values;
  double now = 0;
  for (const pipeline_parallel::Action& action : list) {
    const StageActivations& chunk = chunks.at(static_cast<std::size_t>(action.chunk));
    const auto bytes = static_cast<double>(chunk.layers + chunk.logits);
    const ActionKind last = splits ? ActionKind::kBackwardWeight : ActionKind::kBackward;
    if (action.kind != ActionKind::kForward && action.kind != last) continue;
    now += action.kind == ActionKind::kForward ? bytes : -bytes;
    values.push_back(now);
  }
  return values;
}

// Forwards in flight at most, by the rises and falls of the counter.
int most_in_flight(const std::vector<double>& values) {
  int now = 0;
  int most = 0;
  double before = 0;
  for (const double value : values) {
    now += value > before ? 1 : -1;
    most = std::max(most, now);
    before = value;
  }
  return most;
}

TEST(DryRun, BytesInFlightOfATracedStepAreTheSimulators) {
  const auto schedule = [](const char* name) -> ChangeConfig {
    return [name](config::RunConfig& c) { c.parallel.pipeline_schedule = name; };
  };
  const ChangeConfig chunks = [](config::RunConfig& c) {
    c.parallel.num_layers_per_virtual_pipeline_stage = 1;
  };
  const ChangeConfig again = [](config::RunConfig& c) {
    c.model.recompute_granularity = "full";
    c.model.recompute_method = "uniform";
    c.model.recompute_num_layers = 1;
  };
  const std::vector<Case> cases = {
      {"1f1b", {.pp = 2}, 1, schedule("1f1b")},   {"gpipe", {.pp = 2}, 1, schedule("gpipe")},
      {"zb-h1", {.pp = 2}, 1, schedule("zb-h1")}, {"interleaved", {.pp = 2}, 1, chunks},
      {"tensor", {.tp = 2, .pp = 2}, 1, llama},   {"recompute", {.pp = 2}, 1, again}};
  for (const Case& what : cases) {
    const config::RunConfig config = config_of({what.name, what.layout, 1, [&](auto& c) {
                                                  c.training.micro_batch_size = kMicroBatchSize;
                                                  c.training.global_batch_size =
                                                      kMicroBatchSize * kMicroBatches;
                                                  what.change(c);
                                                }});
    const RunPlan run(config);
    const int num_chunks = static_cast<int>(run.stages.size()) / 2;
    const pipeline_parallel::ScheduleShape shape{
        .num_ranks = 2, .num_micro_batches = kMicroBatches, .num_chunks = num_chunks};
    const auto lists = pipeline_parallel::make_schedule(
        pipeline_parallel::schedule_choice(config.model, config.parallel), shape);
    const auto simulated = pipeline_parallel::simulate(lists, shape);
    ASSERT_EQ(simulated.problem, "") << what.name;
    const auto values = counted(config);
    ASSERT_EQ(static_cast<std::int64_t>(values.size()), config.parallel.world_size);
    for (const auto& [rank, measured] : values) {
      const ModelPlace place(run, rank);
      std::vector<StageActivations> planned;
      for (std::size_t c = 0; c < place.stages().size(); ++c) {
        planned.push_back(
            stage_activations(config, place.stages()[c], place.plans()[c], run.specs));
      }
      const auto stage = static_cast<std::size_t>(rank / what.layout.tp);
      EXPECT_EQ(most_in_flight(measured), simulated.peak_activations[stage])
          << what.name << " rank " << rank;
      const std::vector<double> expected = played(lists[stage], planned);
      ASSERT_EQ(measured.size(), expected.size()) << what.name;
      const double peak = *std::max_element(expected.begin(), expected.end());
      // The allocator rounds each tensor up to 64 bytes.
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(measured[i], expected[i], 0.01 * peak)
            << what.name << " rank " << rank << " change " << i;
      }
      EXPECT_EQ(measured.back(), 0) << what.name;
    }
  }
}

}  // namespace
}  // namespace pentatron::training::dry_run
