// SPDX-License-Identifier: Apache-2.0
// The order in which things are done is the order of the list.
#include <gtest/gtest.h>

#include "pentatron/pipeline_parallel/chain_stage_test_support.h"
#include "pentatron/pipeline_parallel/executor.h"

namespace pentatron::pipeline_parallel {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

// Forwards, backwards and weight gradients as the stages and the queue saw them: those of the list,
// in its order, each with the micro-batch and the chunk that it names.
Trace executed(const ActionList& list, const Pipeline& pipeline, const Groups& groups,
               const std::vector<Batch>& batches) {
  Trace trace;
  const auto stages = make_stages(pipeline, groups.activations->rank());
  const std::vector<StageSlot> slots = slots_of(stages);
  for (int chunk = 0; chunk < pipeline.num_chunks; ++chunk) {
    stages[static_cast<std::size_t>(chunk)]->on_batch = [&trace, chunk](const Batch& batch) {
      trace.push_back({ActionKind::kForward, index_of(batch), chunk});
    };
  }
  const bool splits = std::any_of(list.begin(), list.end(), [](const Action& action) {
    return action.kind == ActionKind::kBackwardWeight;
  });
  WeightGradQueue queue;
  // Backward of a chunk begins with its last unit; micro-batches of a chunk go in order. It leaves
  // an entry of its own among those of its weights.
  std::vector<int> backwards(stages.size(), 0);
  BackwardWatch watch([&](int unit) {
    for (std::size_t chunk = 0; chunk < slots.size(); ++chunk) {
      const int units = stages[chunk]->end() - stages[chunk]->begin();
      if (unit != slots[chunk].first_unit + units - 1) continue;
      const Action backward{ActionKind::kBackward, backwards[chunk]++, static_cast<int>(chunk)};
      trace.push_back(backward);
      if (!splits) continue;
      queue.put(
          {.unit = unit, .micro_batch = backward.micro_batch, .chunk = backward.chunk},
          [&trace, backward] {
            trace.push_back({ActionKind::kBackwardWeight, backward.micro_batch, backward.chunk});
          });
    }
  });
  run_schedule(
      list, slots, groups, batches,
      {.policy = policy(), .seed_of = seed_of(0.5), .events = &watch, .weight_grads = &queue});
  return trace;
}

ActionList computing(const ActionList& list) {
  ActionList kept;
  for (const Action& action : list) {
    if (action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward ||
        action.kind == ActionKind::kBackwardWeight) {
      kept.push_back(action);
    }
  }
  return kept;
}

TEST(Executor, TheExecutedOrderIsTheSchedule) {
  const auto batches = make_batches(6);
  for (const RunRanks run_ranks : {&over_threads, &over_gloo}) {
    for (const Pipeline& pipeline : {Pipeline{3, 1}, Pipeline{2, 3}, Pipeline{3, 2}}) {
      const ScheduleShape shape{pipeline.num_ranks, 6, pipeline.num_chunks};
      const auto lists = pipeline.num_chunks == 1 ? one_forward_one_backward(shape)
                                                  : interleaved_one_forward_one_backward(shape);
      run_ranks(pipeline.num_ranks, [&](comm::Backend& backend) {
        const Groups groups(backend, pipeline.num_ranks);
        const ActionList& list = lists[static_cast<std::size_t>(groups.activations->rank())];
        EXPECT_EQ(executed(list, pipeline, groups, batches), computing(list));
      });
    }
  }
}

TEST(Executor, WeightGradientsStandInTheirSlots) {
  for (const int num_micro_batches : {2, 7}) {
    const auto batches = make_batches(num_micro_batches);
    for (const RunRanks run_ranks : {&over_threads, &over_gloo}) {
      const ScheduleShape shape{3, num_micro_batches};
      for (const auto& lists : {zero_bubble_h1(shape), gpipe(shape), zero_bubble_auto(shape, {}, 2),
                                zero_bubble_auto(shape, {.backward = 1.5}, 5)}) {
        run_ranks(shape.num_ranks, [&](comm::Backend& backend) {
          const Groups groups(backend, shape.num_ranks);
          const ActionList& list = lists[static_cast<std::size_t>(groups.activations->rank())];
          EXPECT_EQ(executed(list, {shape.num_ranks, 1}, groups, batches), computing(list));
        });
      }
    }
  }
}

// A weight action may stand anywhere behind its backward, in any order of micro-batches.
TEST(Executor, WeightGradientsRunInAnyOrder) {
  const auto batches = make_batches(4);
  const Outcome expected = plain_reference(batches, 0.25);
  const auto backend = comm::make_single_backend();
  const Groups groups(*backend, 1);
  const Pipeline pipeline{1, 2};
  ActionList list = interleaved_one_forward_one_backward({1, 4, 2})[0];
  std::vector<Action> weights;
  for (const int micro_batch : {2, 0, 3, 1}) {
    for (const int chunk : {0, 1}) {
      weights.push_back({ActionKind::kBackwardWeight, micro_batch, chunk});
    }
  }
  // The first as early as it may be, the others at the end.
  const auto at = std::find(list.begin(), list.end(), Action{ActionKind::kBackward, 2, 0});
  list.insert(at + 1, weights.front());
  list.insert(list.end(), weights.begin() + 1, weights.end());
  ASSERT_EQ(simulate({list}, {1, 4, 2}).problem, "");
  const auto stages = make_stages(pipeline, 0);
  WeightGradQueue queue;
  std::vector<int> done;
  const auto listening = queue.on_unit_done([&](int unit) { done.push_back(unit); });
  run_schedule(list, slots_of(stages), groups, batches,
               {.policy = policy(), .seed_of = seed_of(0.25), .weight_grads = &queue});
  for (const auto& stage : stages) {
    for (int layer = stage->begin(); layer < stage->end(); ++layer) {
      const Tensor& truth = expected.grads[static_cast<std::size_t>(layer)];
      EXPECT_LE(stage->weight(layer)->main_grad().sub(truth).abs().max().item<double>(),
                1e-12 * truth.abs().max().item<double>());
    }
  }
  std::sort(done.begin(), done.end());
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2, 3, 4, 5})) << "each unit is done once, at the end";
}

}  // namespace
}  // namespace pentatron::pipeline_parallel
