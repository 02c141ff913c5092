// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/data_loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/datasets/global_batch_plan.h"
#include "pentatron/datasets/gpt_sample.h"
#include "pentatron/datasets/test_corpus.h"

namespace pentatron::datasets {
namespace {

// Sample i holds the tokens i * S, i * S + 1, ...; reading takes an uneven time and counts itself.
class CountingSource final : public SampleSource {
 public:
  CountingSource(std::int64_t num_samples, std::int64_t sequence_length)
      : num_samples_(num_samples), sequence_length_(sequence_length) {}
  [[nodiscard]] std::int64_t num_samples() const override { return num_samples_; }
  [[nodiscard]] std::int64_t length(std::int64_t) const override { return sequence_length_; }
  [[nodiscard]] std::string identity() const override { return "counting"; }
  [[nodiscard]] Sample sample(std::int64_t i) const override {
    ++reads;
    if (i == broken) PENTATRON_THROW(kData, "sample {} is broken", i);
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::vector<std::int64_t> text;
    for (std::int64_t t = 0; t <= sequence_length_; ++t) text.push_back(i * sequence_length_ + t);
    return make_gpt_sample(text, -1, {});
  }

  std::int64_t broken = -1;
  mutable std::atomic<std::int64_t> reads{0};

 private:
  std::int64_t num_samples_;
  std::int64_t sequence_length_;
};

using Ids = std::vector<std::int64_t>;
using MicroBatches = std::vector<Ids>;

DataLoaderOptions options(std::int64_t global, std::int64_t micro, std::int64_t dp,
                          std::int64_t rank, std::int64_t consumed, std::int64_t workers) {
  return DataLoaderOptions{.plan = std::make_shared<GlobalBatchPlan>(global, micro, dp),
                           .dp_rank = rank,
                           .consumed_samples = consumed,
                           .num_workers = workers};
}

std::vector<std::int64_t> all_ids(const SampleSource& source, DataLoaderOptions with) {
  DataLoader loader(source, std::move(with));
  std::vector<std::int64_t> ids;
  while (const auto step = loader.next()) {
    for (const auto& batch : *step) {
      ids.insert(ids.end(), batch->sample_ids.begin(), batch->sample_ids.end());
    }
  }
  return ids;
}

TEST(GlobalBatchPlan, RanksTakeContiguousSlices) {
  const GlobalBatchPlan plan(12, 2, 3);
  EXPECT_EQ(plan.num_micro_batches(), 2);
  EXPECT_EQ(plan.micro_batches(24, 0), (MicroBatches{{24, 25}, {30, 31}}));
  EXPECT_EQ(plan.micro_batches(24, 1), (MicroBatches{{26, 27}, {32, 33}}));
  EXPECT_EQ(plan.micro_batches(24, 2), (MicroBatches{{28, 29}, {34, 35}}));
  EXPECT_THROW((void)plan.micro_batches(24, 3), Error);
  EXPECT_THROW((void)plan.micro_batches(-1, 0), Error);
}

TEST(GlobalBatchPlan, RefusesWhatDoesNotDivide) {
  EXPECT_THROW(GlobalBatchPlan(10, 2, 3), Error);
  EXPECT_THROW(GlobalBatchPlan(4, 2, 3), Error);
  EXPECT_THROW(GlobalBatchPlan(0, 1, 1), Error);
  EXPECT_THROW(GlobalBatchPlan(4, 1LL << 40, 1LL << 40), Error);
}

TEST(GlobalBatchPlan, EveryLayoutReadsTheSameSamplesInAStep) {
  const std::int64_t global = 24;
  for (const std::int64_t dp : {1, 2, 3, 4, 6}) {
    for (const std::int64_t micro : {1, 2, 4}) {
      if (global % (dp * micro) != 0) continue;
      const GlobalBatchPlan plan(global, micro, dp);
      std::vector<int> seen(24, 0);
      for (std::int64_t rank = 0; rank < dp; ++rank) {
        for (const std::vector<std::int64_t>& ids : plan.micro_batches(48, rank)) {
          for (const std::int64_t id : ids) {
            ++seen[static_cast<std::size_t>(id - 48)];
          }
        }
      }
      EXPECT_EQ(seen, std::vector<int>(24, 1)) << dp << " " << micro;
    }
  }
}

TEST(DataLoader, LaysSamplesSideBySide) {
  const CountingSource source(8, 3);
  DataLoader loader(source, options(4, 2, 2, 1, 0, 0));
  EXPECT_EQ(loader.num_steps(), 2);
  const auto step = loader.next();
  ASSERT_TRUE(step);
  ASSERT_EQ(step->size(), 1U);
  const SampleBatch& batch = *step->front();
  EXPECT_EQ(batch.sample_ids, (Ids{2, 3}));
  EXPECT_EQ(testing::copied(batch.ids("tokens")), (Ids{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(testing::copied(batch.ids("labels")), (Ids{7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(testing::copied(batch.weights("loss_mask")), std::vector<float>(6, 1.0F));
  const SampleBatch::Sequence& text = batch.sequences.at("text");
  EXPECT_EQ(text.positions, (Ids{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(text.boundaries, (Ids{0, 3, 6}));
  EXPECT_EQ(text.samples, (Ids{0, 3, 6}));
  EXPECT_EQ(loader.consumed_samples(), 4);
  ASSERT_TRUE(loader.next());
  EXPECT_FALSE(loader.next());
  EXPECT_FALSE(loader.next());
  EXPECT_EQ(loader.consumed_samples(), 8);
}

TEST(DataLoader, OrderDoesNotDependOnThreads) {
  const CountingSource source(400, 4);
  const auto expected = all_ids(source, options(8, 2, 2, 1, 16, 0));
  EXPECT_EQ(expected.size(), (400U - 16U) / 2U);
  for (const std::int64_t workers : {1, 2, 3, 8}) {
    for (const std::int64_t prefetch : {0, 1, 5}) {
      DataLoaderOptions with = options(8, 2, 2, 1, 16, workers);
      with.prefetch = prefetch;
      EXPECT_EQ(all_ids(source, with), expected) << workers << " " << prefetch;
    }
  }
}

TEST(DataLoader, ReadsAheadWithinItsBound) {
  const CountingSource source(1000, 2);
  DataLoaderOptions with = options(1, 1, 1, 0, 0, 4);
  with.prefetch = 6;
  DataLoader loader(source, with);
  ASSERT_TRUE(loader.next());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (source.reads < 7 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(source.reads, 7);  // one handed out, six ahead
}

TEST(DataLoader, ErrorsComeInTheirPlace) {
  CountingSource source(100, 2);
  source.broken = 9;
  for (const std::int64_t workers : {0, 1, 4}) {
    DataLoader loader(source, options(2, 2, 1, 0, 0, workers));
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(loader.next());
    for (int again = 0; again < 2; ++again) {
      try {
        (void)loader.next();
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()), "sample 9 is broken");
      }
    }
  }
}

TEST(DataLoader, StopsEarlyWithoutHanging) {
  const CountingSource source(100000, 2);
  for (int i = 0; i < 20; ++i) {
    DataLoader loader(source, options(4, 2, 1, 0, 0, 3));
    ASSERT_TRUE(loader.next());
  }
}

TEST(DataLoader, TotalEndsTheOrder) {
  const CountingSource source(100, 2);
  DataLoaderOptions with = options(8, 4, 1, 0, 8, 1);
  with.total_samples = 30;
  EXPECT_EQ(all_ids(source, with).size(), 16U);  // 22 left, 16 in whole batches
  with.total_samples = 101;
  EXPECT_THROW(DataLoader(source, with), Error);
}

TEST(Cases, MegatronBridge_4926) {
  // Three samples, global batch 4: a clear error, not an empty epoch.
  const CountingSource source(3, 2);
  try {
    const DataLoader loader(source, options(4, 1, 1, 0, 0, 2));
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(message.find("3 samples"), std::string::npos) << message;
    EXPECT_NE(message.find("--global-batch-size 4"), std::string::npos) << message;
  }
}

TEST(Cases, LlmC_494) {
  // A batch that does not fit wholly is dropped on both ranks alike, never read in part.
  const CountingSource source(11, 2);
  EXPECT_EQ(all_ids(source, options(4, 2, 2, 0, 0, 2)), (std::vector<std::int64_t>{0, 1, 4, 5}));
  EXPECT_EQ(all_ids(source, options(4, 2, 2, 1, 0, 2)), (std::vector<std::int64_t>{2, 3, 6, 7}));
}

TEST(Cases, MegatronBridge_4565) {
  // Resuming at any step gives the rest of the uninterrupted list, in the same or another layout of
  // micro-batches.
  const CountingSource source(96, 2);
  const auto whole = all_ids(source, options(8, 4, 1, 0, 0, 2));
  for (std::int64_t consumed = 0; consumed < 96; consumed += 8) {
    for (const std::int64_t micro : {1, 2, 4, 8}) {
      const auto rest = all_ids(source, options(8, micro, 1, 0, consumed, 2));
      EXPECT_EQ(rest, std::vector<std::int64_t>(whole.begin() + consumed, whole.end()));
    }
  }
}

TEST(Cases, NeMoSpeech_7221) {
  // At the very end there is no batch left: said so, with the numbers. One step before it, one step
  // comes.
  const CountingSource source(16, 2);
  EXPECT_EQ(all_ids(source, options(4, 4, 1, 0, 12, 2)),
            (std::vector<std::int64_t>{12, 13, 14, 15}));
  EXPECT_THROW(DataLoader(source, options(4, 4, 1, 0, 16, 2)), Error);
}

}  // namespace
}  // namespace pentatron::datasets
