// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/batch_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/datasets/data_loader.h"
#include "pentatron/datasets/global_batch_plan.h"
#include "pentatron/datasets/gpt_dataset.h"
#include "pentatron/datasets/gpt_sample.h"
#include "pentatron/datasets/test_corpus.h"

namespace pentatron::datasets {
namespace {

// Counts what it is asked for.
class CountingMemory final : public std::pmr::memory_resource {
 public:
  std::atomic<int> given{0};
  std::atomic<int> held{0};

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    ++given;
    ++held;
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override {
    --held;
    std::pmr::new_delete_resource()->deallocate(data, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }
};

// Sample i: tokens i, i + 1, ...; reading may take its time.
class PlainSource final : public SampleSource {
 public:
  explicit PlainSource(std::chrono::microseconds pause = {}) : pause_(pause) {}
  [[nodiscard]] std::int64_t num_samples() const override { return 4000; }
  [[nodiscard]] std::int64_t length(std::int64_t) const override { return 8; }
  [[nodiscard]] std::string identity() const override { return "plain"; }
  [[nodiscard]] Sample sample(std::int64_t i) const override {
    std::this_thread::sleep_for(pause_);
    std::vector<std::int64_t> text;
    for (std::int64_t t = 0; t <= 8; ++t) text.push_back(i + t);
    return make_gpt_sample(text, -1, {});
  }

 private:
  std::chrono::microseconds pause_;
};

using Step = std::vector<std::shared_ptr<const SampleBatch>>;

DataLoaderOptions four_a_step(std::int64_t workers,
                              std::shared_ptr<std::pmr::memory_resource> memory = nullptr) {
  return {.plan = std::make_shared<GlobalBatchPlan>(8, 2, 1),
          .num_workers = workers,
          .memory = std::move(memory)};
}

TEST(BatchPool, NothingIsAllocatedInTheSteadyState) {
  const PlainSource source;
  for (const std::int64_t workers : {0, 1, 3}) {
    const auto memory = std::make_shared<CountingMemory>();
    std::vector<std::int64_t> seen;
    {
      DataLoader loader(source, four_a_step(workers, memory));
      Step last;  // a trainer holds a step until the next one has come
      for (int step = 0; step < 400; ++step) {
        Step now = loader.next().value();
        for (const auto& batch : now) {
          EXPECT_EQ(batch->ids("tokens")[8], batch->sample_ids[1]);
          seen.push_back(batch->sample_ids[0]);
        }
        last = std::move(now);
      }
      EXPECT_GT(memory->given, 0);
      // 3 fields of what can be in use at once, which may first happen in any step: two steps' 8
      // batches, 2 a worker ahead, one being read by each. All 1,600 batches would have 4,800.
      EXPECT_LE(memory->given, 3 * (8 + 3 * workers)) << workers << " workers";
    }
    EXPECT_EQ(memory->held, 0);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      ASSERT_EQ(seen[i], static_cast<std::int64_t>(2 * i));
    }
  }
}

TEST(BatchPool, ABatchOutlivesItsLoader) {
  const PlainSource source;
  const auto memory = std::make_shared<CountingMemory>();
  Step step;
  {
    DataLoader loader(source, four_a_step(2, memory));
    step = loader.next().value();
  }
  EXPECT_EQ(memory->held, 12);
  EXPECT_EQ(step[3]->ids("tokens")[0], 6);
  step.clear();
  EXPECT_EQ(memory->held, 0);
}

// A buffer of other samples: other names, another kind of values, fewer rows.
TEST(BatchPool, ABufferTakesAnyForm) {
  class Changing final : public SampleSource {
   public:
    [[nodiscard]] std::int64_t num_samples() const override { return 3; }
    [[nodiscard]] std::int64_t length(std::int64_t i) const override { return 4 - i; }
    [[nodiscard]] std::string identity() const override { return "changing"; }
    [[nodiscard]] Sample sample(std::int64_t i) const override {
      const auto rows = static_cast<std::size_t>(length(i));
      Sample sample;
      sample.sequences.emplace(i == 2 ? "image" : "text",
                               SampleSequence{.positions = std::vector<std::int64_t>(rows, i),
                                              .runs = {static_cast<std::int32_t>(rows)}});
      if (i == 1) {
        sample.fields.emplace("x", std::vector<float>(rows, 0.5F));
      } else {
        sample.fields.emplace("x", std::vector<std::int64_t>(rows, i));
      }
      return sample;
    }
  };
  const Changing source;
  const auto memory = std::make_shared<CountingMemory>();
  SampleBatch batch(memory);
  for (const std::int64_t i : {0, 1, 2, 0}) {
    batch.read(source, {i});
    const SampleBatch fresh = make_batch(source, {i});
    ASSERT_EQ(batch.sequences.size(), 1U);
    EXPECT_EQ(batch.sequences.begin()->first, fresh.sequences.begin()->first);
    EXPECT_EQ(batch.sequences.begin()->second.positions, fresh.sequences.begin()->second.positions);
    EXPECT_EQ(batch.fields, fresh.fields);
  }
  EXPECT_GT(memory->given, 0);
}

TEST(DataLoader, TellsHowLongAStepWaited) {
  using namespace std::chrono_literals;
  const PlainSource slow(2ms);
  for (const std::int64_t workers : {0, 1}) {
    DataLoader loader(slow, four_a_step(workers));
    EXPECT_EQ(loader.wait_seconds(), 0);
    (void)loader.next();  // eight samples of 2 ms
    EXPECT_GE(loader.wait_seconds(), 0.010) << workers << " workers";
  }
  // What is there in time costs no waiting.
  const PlainSource quick;
  DataLoader loader(quick, four_a_step(2));
  std::this_thread::sleep_for(300ms);
  const double before = loader.wait_seconds();
  (void)loader.next();
  EXPECT_EQ(loader.wait_seconds(), before);
}

// What a reading thread meets is thrown in the step that needs it, with file and document.
TEST(DataLoader, ErrorsNameFileAndDocument) {
  const TempFolder folder;
  const std::string prefix = (folder.path() / "c").string();
  {
    IndexedDatasetWriter writer(prefix, TokenDtype::kUint16);
    for (int d = 0; d < 20; ++d) {
      for (int s = 0; s < 2; ++s) {  // sentences
        writer.add_sequence(std::vector<std::int32_t>(5, d == 13 && s == 1 ? 999 : d));
      }
      writer.end_document();
    }
    writer.finish();
  }
  GptDatasetOptions options;
  options.data_path = prefix;
  options.split = "1";
  options.sequence_length = 5;
  options.vocab_size = 100;
  options.eod = 99;
  const GptDataset dataset(open_gpt_corpus(options), options, DataSplit::kTrain, 39);
  std::int64_t bad = 0;  // the first sample in training order that holds it
  const auto holds_it = [&](std::int64_t i) {
    try {
      (void)dataset.sample(i);
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  while (!holds_it(bad)) ++bad;
  for (const std::int64_t workers : {0, 2}) {
    DataLoader loader(dataset,
                      {.plan = std::make_shared<GlobalBatchPlan>(1, 1, 1), .num_workers = workers});
    for (std::int64_t step = 0; step < bad; ++step) ASSERT_TRUE(loader.next());
    expect_error(ErrorKind::kData, prefix + ": sequence 27 (document 13) holds token 999",
                 [&] { (void)loader.next(); });
  }
}

}  // namespace
}  // namespace pentatron::datasets
