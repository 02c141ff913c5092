// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/packed_batch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/datasets/data_loader.h"
#include "pentatron/datasets/test_corpus.h"

namespace pentatron::datasets {
namespace {

using Ids = std::vector<std::int64_t>;
using MicroBatches = std::vector<Ids>;

// Sample i has the i-th length; one sequence in two runs, a field of one value a sample.
class RaggedSource final : public SampleSource {
 public:
  explicit RaggedSource(Ids lengths) : lengths_(std::move(lengths)) {}
  [[nodiscard]] std::int64_t num_samples() const override { return std::ssize(lengths_); }
  [[nodiscard]] std::int64_t length(std::int64_t i) const override {
    return lengths_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] std::string identity() const override { return "ragged"; }
  [[nodiscard]] Sample sample(std::int64_t i) const override {
    const std::int64_t rows = length(i) + (i == lies_about ? 1 : 0);
    SampleSequence sequence;
    for (std::int64_t t = 0; t < rows; ++t) sequence.positions.push_back(t);
    sequence.runs = {1, static_cast<std::int32_t>(rows - (i == miscounts ? 2 : 1))};
    Sample made;
    made.sequences.emplace(Sample::kText, std::move(sequence));
    made.fields.emplace("tokens", Ids(static_cast<std::size_t>(rows), i));
    made.fields.emplace(i == renames ? "other" : "label", Ids{10 * i});
    return made;
  }
  std::int64_t lies_about = -1, miscounts = -1, renames = -1;

 private:
  Ids lengths_;
};

TEST(PackedBatchPlan, PacksInOrderAndDealsByLoad) {
  const RaggedSource source({5, 3, 4, 9, 2, 2, 7, 1});
  // Packs of at most 9 tokens: {0, 1}, {2}, {3}, {4, 5}, {6, 7}; of 8, 4, 9, 4 and 8 tokens.
  const PackedBatchPlan one(source, 8, 9, 1);
  EXPECT_EQ(one.micro_batches(0, 0), (MicroBatches{{0, 1}, {2}, {3}, {4, 5}, {6, 7}}));
  const PackedBatchPlan two(source, 8, 9, 2);
  EXPECT_EQ(two.micro_batches(0, 0), (MicroBatches{{0, 1}, {4, 5}, {6, 7}}));
  EXPECT_EQ(two.micro_batches(0, 1), (MicroBatches{{2}, {3}}));
  // More ranks than micro-batches: some have none.
  const PackedBatchPlan six(source, 8, 9, 6);
  EXPECT_EQ(six.micro_batches(0, 4), (MicroBatches{{6, 7}}));
  EXPECT_TRUE(six.micro_batches(0, 5).empty());
  // A step begins its own packs.
  const PackedBatchPlan halves(source, 4, 9, 1);
  EXPECT_EQ(halves.micro_batches(4, 0), (MicroBatches{{4, 5}, {6, 7}}));
  EXPECT_EQ(halves.num_steps(8, 0), 2);
}

TEST(PackedBatchPlan, EveryLayoutHasTheMicroBatchesOfOneRank) {
  Ids lengths;
  for (std::int64_t i = 0; i < 64; ++i) lengths.push_back(1 + i * 7 % 13);
  const RaggedSource source(lengths);
  const MicroBatches whole = PackedBatchPlan(source, 32, 20, 1).micro_batches(32, 0);
  for (const std::int64_t dp : {2, 3, 5, 40}) {
    const PackedBatchPlan plan(source, 32, 20, dp);
    MicroBatches all;
    for (std::int64_t rank = 0; rank < dp; ++rank) {
      for (Ids& ids : plan.micro_batches(32, rank)) all.push_back(std::move(ids));
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, whole) << dp;
  }
}

TEST(PackedBatchPlan, RefusesWhatDoesNotFit) {
  const RaggedSource source({5, 3, 40, 2});
  EXPECT_THROW(PackedBatchPlan(source, 0, 9, 1), Error);
  EXPECT_THROW(PackedBatchPlan(source, 1, 0, 1), Error);
  const PackedBatchPlan plan(source, 2, 9, 2);
  EXPECT_THROW((void)plan.micro_batches(0, 2), Error);
  try {
    (void)plan.micro_batches(2, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_STREQ(error.what(), "sample 2 has 40 tokens, a packed micro-batch at most 9");
  }
  // A loader whose threads meet it: the steps before it come whole, then the error, again and
  // again.
  for (const std::int64_t workers : {0, 1, 3}) {
    DataLoader loader(source, {.plan = std::make_shared<PackedBatchPlan>(source, 2, 9, 1),
                               .num_workers = workers});
    EXPECT_EQ(loader.next().value().size(), 1U);
    for (int again = 0; again < 2; ++again) EXPECT_THROW((void)loader.next(), Error);
  }
}

TEST(PackedBatchPlan, LoaderHandsOutWholeStepsOfAnyCount) {
  const RaggedSource source({5, 3, 4, 9, 2, 2, 7, 1, 9, 9, 9, 9, 1, 1, 1, 1});
  for (const std::int64_t workers : {0, 1, 4}) {
    for (const std::int64_t rank : {0, 1, 4, 5}) {
      const auto plan = std::make_shared<PackedBatchPlan>(source, 4, 9, 6);
      DataLoader loader(source, {.plan = plan, .dp_rank = rank, .num_workers = workers});
      for (std::int64_t step = 0; step < 4; ++step) {
        const auto batches = loader.next();
        ASSERT_TRUE(batches) << step;
        MicroBatches ids;
        for (const auto& batch : *batches) ids.push_back(batch->sample_ids);
        EXPECT_EQ(ids, plan->micro_batches(4 * step, rank));
        EXPECT_EQ(loader.consumed_samples(), 4 * (step + 1));
      }
      EXPECT_FALSE(loader.next());
    }
  }
}

TEST(MakeBatch, LaysRaggedSamplesSideBySide) {
  RaggedSource source({5, 3, 4});
  const SampleBatch batch = make_batch(source, {2, 0});
  const SampleBatch::Sequence& text = batch.sequences.at("text");
  EXPECT_EQ(text.samples, (Ids{0, 4, 9}));
  EXPECT_EQ(text.boundaries, (Ids{0, 1, 4, 5, 9}));
  EXPECT_EQ(text.positions, (Ids{0, 1, 2, 3, 0, 1, 2, 3, 4}));
  EXPECT_EQ(testing::copied(batch.ids("tokens")), (Ids{2, 2, 2, 2, 0, 0, 0, 0, 0}));
  EXPECT_EQ(testing::copied(batch.ids("label")), (Ids{20, 0}));
  source.lies_about = 1;
  EXPECT_THROW((void)make_batch(source, {0, 1}), Error);
  source.lies_about = -1;
  source.miscounts = 1;
  EXPECT_THROW((void)make_batch(source, {0, 1}), Error);
  source.miscounts = -1;
  source.renames = 1;
  EXPECT_THROW((void)make_batch(source, {0, 1}), Error);
}

}  // namespace
}  // namespace pentatron::datasets
