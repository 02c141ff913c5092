// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/executor.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/pipeline_parallel/chain_stage_test_support.h"
#include "pentatron/tensor/memory.h"

namespace pentatron::pipeline_parallel {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

// Ranks run ahead as far as they like, or keep two micro-batches at most.
std::vector<ActionList> zero_bubble_wide(const ScheduleShape& shape) {
  return zero_bubble_auto(shape, {.send = 0.5}, 100);
}
std::vector<ActionList> zero_bubble_narrow(const ScheduleShape& shape) {
  return zero_bubble_auto(shape, {}, 2);
}
constexpr MakeLists kOneStageARank[] = {&one_forward_one_backward, &gpipe, &zero_bubble_h1,
                                        &zero_bubble_wide, &zero_bubble_narrow};

TEST(Executor, EveryPipelineEqualsOneProcess) {
  constexpr double kSeed = 1.0 / 37;
  for (const int num_micro_batches : {1, 2, 5}) {
    const auto batches = make_batches(num_micro_batches);
    const Outcome expected = plain_reference(batches, kSeed);
    for (const int num_ranks : {1, 2, 3, 6}) {
      SCOPED_TRACE(testing::Message()
                   << num_ranks << " ranks, " << num_micro_batches << " micro-batches");
      for (const MakeLists make : kOneStageARank) {
        expect_equal(run_pipeline({num_ranks}, batches, kSeed, make), expected, 1e-12);
      }
    }
  }
}

TEST(Executor, EveryRankRunsItsStagesInTurn) {
  constexpr double kSeed = 1.0 / 37;
  for (const int num_micro_batches : {2, 3, 6, 8}) {
    const auto batches = make_batches(num_micro_batches);
    const Outcome expected = plain_reference(batches, kSeed);
    // One rank hands over to itself.
    for (const auto& [ranks, chunks] : {std::pair{1, 3}, {2, 3}, {3, 2}}) {
      if (num_micro_batches % ranks != 0) continue;
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << chunks << " chunks, "
                                      << num_micro_batches << " micro-batches");
      expect_equal(
          run_pipeline({ranks, chunks}, batches, kSeed, interleaved_one_forward_one_backward),
          expected, 1e-12);
      expect_equal(run_pipeline({ranks, chunks}, batches, kSeed, gpipe), expected, 1e-12);
      const Outcome evaluated =
          run_pipeline({ranks, chunks, nn::Phase::kEvaluate}, batches, 1, forward_only);
      EXPECT_EQ(evaluated.losses.size(), expected.losses.size());
      EXPECT_NEAR(evaluated.loss_sum, expected.loss_sum, 1e-12 * expected.loss_sum);
    }
  }
}

TEST(Executor, RunsOverSockets) {
  const auto batches = make_batches(6);
  const Outcome expected = plain_reference(batches, 0.125);
  for (const MakeLists make : kOneStageARank) {
    expect_equal(run_pipeline({3}, batches, 0.125, make, over_gloo), expected, 1e-12);
  }
  expect_equal(
      run_pipeline({2, 3}, batches, 0.125, interleaved_one_forward_one_backward, over_gloo),
      expected, 1e-12);
  for (const Pipeline& pipeline :
       {Pipeline{3, 1, nn::Phase::kEvaluate}, Pipeline{2, 3, nn::Phase::kEvaluate}}) {
    EXPECT_NEAR(run_pipeline(pipeline, batches, 1, forward_only, over_gloo).loss_sum,
                expected.loss_sum, 1e-12 * expected.loss_sum);
  }
}

TEST(Executor, ForwardOnlyGivesLossesWithoutGraph) {
  const auto batches = make_batches(7);
  Outcome expected = plain_reference(batches, 1.0);
  for (const int num_ranks : {1, 3}) {
    const Outcome actual =
        run_pipeline({num_ranks, 1, nn::Phase::kEvaluate}, batches, 1.0, forward_only);
    EXPECT_NEAR(actual.loss_sum, expected.loss_sum, 1e-12 * expected.loss_sum);
    for (const Tensor& grad : actual.grads) EXPECT_EQ(grad.abs().max().item<double>(), 0.0);
  }
}

// A stage keeps the gradient edge, not the sent tensor: its memory goes as soon as the other side
// has answered.
TEST(Executor, SentAndReceivedActivationsAreFreed) {
  constexpr int kMicroBatches = 8;
  const auto batches = make_batches(kMicroBatches);
  const auto lists = one_forward_one_backward({2, kMicroBatches});
  comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
    const Groups groups(backend, 2);
    const int rank = groups.activations->rank();
    ChainStage stage(rank * 3, rank * 3 + 3);
    int most_alive = 0;
    int most_received = 0;
    int alive_at_last_backward = -1;
    stage.on_forward = [&] {
      most_alive = std::max(most_alive, ChainStage::num_alive(stage.sent));
      most_received = std::max(most_received, ChainStage::num_alive(stage.received));
    };
    run_one(lists[static_cast<std::size_t>(rank)], stage, groups, batches,
            {.policy = policy(), .seed_of = seed_of(1), .on_last_micro_batch = [&](int) {
               alive_at_last_backward = ChainStage::num_alive(stage.sent);
             }});
    EXPECT_EQ(ChainStage::num_alive(stage.sent), 0);
    EXPECT_EQ(most_received, 0) << "the last stage is done with an input before the next comes";
    if (rank == 0) {
      EXPECT_EQ(stage.sent.size(), static_cast<std::size_t>(kMicroBatches));
      EXPECT_LE(most_alive, 1);
      EXPECT_EQ(alive_at_last_backward, 0)
          << "the graph of the last backward is whole, its output is gone";
    }
  });
}

std::int64_t peak_bytes(int num_micro_batches) {
  const auto lists = one_forward_one_backward({1, num_micro_batches});
  std::vector<Batch> batches;
  for (int i = 0; i < num_micro_batches; ++i) batches.push_back(make_batch(i, 64));
  ChainStage stage(0, 4, 4, 64);
  const auto backend = comm::make_single_backend();
  const Groups groups(*backend, 1);
  const tensor::MemoryMeter meter;
  run_one(lists[0], stage, groups, batches, {.policy = policy(), .seed_of = seed_of(1)});
  EXPECT_LT(meter.current_bytes(), 4096) << "a step leaves nothing behind";
  return meter.peak_bytes();
}

TEST(Executor, PeakMemoryDoesNotGrowWithMicroBatches) {
  const std::int64_t two = peak_bytes(2);
  EXPECT_GT(two, 64 * 64 * 8);
  EXPECT_LE(peak_bytes(12), two + 4096);
}

// Collects what the queue and the callback report.
TEST(Executor, SplitWeightRunsEachMicroBatchInItsAction) {
  const auto batches = make_batches(3);
  ChainStage stage(0, kNumLayers);
  const auto backend = comm::make_single_backend();
  const Groups groups(*backend, 1);
  WeightGradQueue queue;
  std::vector<int> done;
  const auto listening = queue.on_unit_done([&](int layer) { done.push_back(layer); });
  std::vector<std::size_t> pending_at_forward;
  stage.on_forward = [&] { pending_at_forward.push_back(queue.pending()); };
  using K = ActionKind;
  const ActionList list = {
      {K::kForward, 0},        {K::kBackward, 0},       {K::kForward, 1},
      {K::kBackward, 1},       {K::kBackwardWeight, 0}, {K::kForward, 2},
      {K::kBackwardWeight, 1}, {K::kBackward, 2},       {K::kBackwardWeight, 2}};
  run_one(list, stage, groups, batches,
          {.policy = policy(), .seed_of = seed_of(0.5), .weight_grads = &queue});
  const std::vector<std::size_t> expected_pending = {0, kNumLayers, kNumLayers};
  EXPECT_EQ(pending_at_forward, expected_pending);
  EXPECT_EQ(queue.pending(), 0U);
  EXPECT_FALSE(queue.postpone()) << "the caller's setting is put back";
  // Layers report when nothing of theirs is left: after micro-batches 1 and 2, last layer first.
  const std::vector<int> expected_done = {5, 4, 3, 2, 1, 0, 5, 4, 3, 2, 1, 0};
  EXPECT_EQ(done, expected_done);
}

TEST(Executor, PostponedGradientsAreNotLost) {
  const auto batches = make_batches(2);
  const Outcome expected = plain_reference(batches, 1.0);
  ChainStage stage(0, kNumLayers);
  const auto backend = comm::make_single_backend();
  const Groups groups(*backend, 1);
  WeightGradQueue queue;
  queue.set_postpone(true);
  run_one(one_forward_one_backward({1, 2})[0], stage, groups, batches,
          {.policy = policy(), .seed_of = seed_of(1), .weight_grads = &queue});
  EXPECT_EQ(queue.pending(), 0U);
  EXPECT_TRUE(queue.postpone());
  const Tensor grad = stage.weight(2)->main_grad();
  EXPECT_LE(grad.sub(expected.grads[2]).abs().max().item<double>(), 1e-11);
}

// A stage that fails in the middle of a step ends all ranks with its own error, without waiting for
// sends that nobody takes.
TEST(Executor, AnErrorEndsEveryRank) {
  const auto batches = make_batches(6);
  const auto lists = one_forward_one_backward({3, 6});
  for (int failing = 0; failing < 3; ++failing) {
    try {
      comm::run_threads({.world_size = 3, .timeout = std::chrono::milliseconds(60'000)},
                        [&](comm::Backend& backend) {
                          const Groups groups(backend, 3);
                          const int rank = groups.activations->rank();
                          ChainStage stage(rank * 2, rank * 2 + 2);
                          int forwards = 0;
                          stage.on_forward = [&] {
                            PENTATRON_CHECK(rank != failing || ++forwards < 3, kData,
                                            "planted failure of stage {}", rank);
                          };
                          run_one(lists[static_cast<std::size_t>(rank)], stage, groups, batches,
                                  {.policy = policy(), .seed_of = seed_of(1)});
                        });
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), "planted failure of stage " + std::to_string(failing));
    }
  }
}

TEST(Executor, RefusesWhatItCannotRun) {
  const auto batches = make_batches(1);
  ChainStage stage(0, kNumLayers);
  const auto backend = comm::make_single_backend();
  const Groups groups(*backend, 1);
  const auto run = [&](const ActionList& list, bool seeds, StageGraph graph = {}) {
    run_one(
        list, stage, groups, batches,
        {.policy = policy(), .seed_of = seeds ? seed_of(1) : nullptr, .graph = std::move(graph)});
  };
  using K = ActionKind;
  EXPECT_THROW(run({{K::kForward, 0, 1}}, true), Error) << "no such chunk";
  EXPECT_THROW(run({{K::kForward, 1, 0}}, true), Error) << "no such micro-batch";
  EXPECT_THROW(run({{K::kForward, 0, 0}, {K::kBackward, 0, 0}}, false), Error) << "no seed";
  EXPECT_THROW(run({}, true, chain_graph(2)), Error) << "a graph of other stages";
}

}  // namespace
}  // namespace pentatron::pipeline_parallel
