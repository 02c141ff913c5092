// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pentatron/base/temp_folder.h"
#include "pentatron/config/parser_test_support.h"
#include "pentatron/datasets/data_loader.h"
#include "pentatron/datasets/global_batch_plan.h"
#include "pentatron/datasets/gpt_dataset.h"
#include "pentatron/datasets/gpt_parts_test_support.h"
#include "pentatron/datasets/gpt_sample.h"
#include "pentatron/datasets/test_corpus.h"

// Options of the command line, and what this module does with their values.
namespace pentatron::datasets {
namespace {

config::DataConfig data_config(std::vector<std::string> words) {
  return config::testing_support::config_of(std::move(words)).data;
}

// Holds each reading thread until as many as expected are here, and remembers them all.
class MeetingSource final : public SampleSource {
 public:
  explicit MeetingSource(std::size_t expected) : expected_(expected) {}
  [[nodiscard]] std::int64_t num_samples() const override { return 64; }
  [[nodiscard]] std::int64_t length(std::int64_t) const override { return 2; }
  [[nodiscard]] std::string identity() const override { return "meeting"; }
  [[nodiscard]] Sample sample(std::int64_t i) const override {
    std::unique_lock lock(mutex_);
    threads_.insert(std::this_thread::get_id());
    arrived_.notify_all();
    arrived_.wait_for(lock, std::chrono::seconds(10),
                      [this] { return threads_.size() >= expected_; });
    return make_gpt_sample({i, i, i}, -1, {});
  }
  [[nodiscard]] std::set<std::thread::id> threads() const {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  std::size_t expected_;
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  mutable std::set<std::thread::id> threads_;
};

TEST(Loader, WorkersFromConfig) {
  const std::vector<std::pair<std::vector<std::string>, std::size_t>> cases = {
      {{"--num-workers", "0"}, 0},
      {{"--num-workers", "1"}, 1},
      {{"--num-workers", "5"}, 5},
      {{}, 2}};
  for (const auto& [words, workers] : cases) {
    const MeetingSource source(workers);
    DataLoader loader(source, {.plan = std::make_shared<GlobalBatchPlan>(1, 1, 1),
                               .num_workers = data_config(words).num_workers});
    while (loader.next()) {
    }
    const std::set<std::thread::id> threads = source.threads();
    const bool reads_itself = threads.contains(std::this_thread::get_id());
    EXPECT_EQ(reads_itself, workers == 0);
    EXPECT_EQ(threads.size(), workers == 0 ? 1 : workers);
  }
}

bool is_mapped(const std::filesystem::path& path) {
  std::stringstream maps;
  maps << std::ifstream("/proc/self/maps").rdbuf();
  return maps.str().find(std::filesystem::canonical(path).string()) != std::string::npos;
}

TEST(IndexedDataset, ReadsWithoutMapping) {
  const TempFolder folder;
  const std::string prefix = (folder.path() / "c").string();
  testing::write_corpus(prefix, testing::distinct_documents({50, 20, 10, 33, 80, 14}));
  GptDatasetOptions with;
  with.data_path = prefix;
  with.split = "100";
  with.sequence_length = 7;
  with.vocab_size = 1000;
  const auto open = [&](const std::vector<std::string>& words) {
    with.mmap_bin_files = data_config(words).mmap_bin_files;
    return build_gpt_parts(with, {.train = 20, .valid = 0, .test = 0});
  };
  const GptParts read = open({"--no-mmap-bin-files"});
  EXPECT_FALSE(is_mapped(bin_path(prefix)));
  EXPECT_TRUE(is_mapped(index_path(prefix)));
  const GptParts mapped = open({});
  EXPECT_TRUE(is_mapped(bin_path(prefix)));
  for (std::int64_t i = 0; i < read.train->num_samples(); ++i) {
    EXPECT_EQ(read.train->text(i).tokens, mapped.train->text(i).tokens);
  }
}

}  // namespace
}  // namespace pentatron::datasets
