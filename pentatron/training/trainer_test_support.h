// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "pentatron/base/temp_folder.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/datasets/indexed_dataset_writer.h"
#include "pentatron/training/metrics.h"
#include "pentatron/training/test_support.h"
#include "pentatron/training/trainer.h"

// Whole runs on a real corpus of numbers, in this process. Only tests include it.
namespace pentatron::training::testing_support {

namespace fs = std::filesystem;

inline constexpr std::int64_t kIds = 31;  // and the end token

// A temporary folder with a corpus of 60 documents of 40 rising numbers.
class RunFolder {
 public:
  RunFolder() {
    datasets::IndexedDatasetWriter writer(corpus(), datasets::TokenDtype::kUint16);
    for (std::int32_t document = 0; document < 60; ++document) {
      std::vector<std::int32_t> tokens;
      for (std::int32_t i = 0; i < 39; ++i) tokens.push_back((document * 7 + i) % kIds);
      tokens.push_back(static_cast<std::int32_t>(kIds));
      writer.add_sequence(tokens);
      writer.end_document();
    }
    writer.finish();
  }
  [[nodiscard]] std::string corpus() const { return (folder_.path() / "corpus").string(); }
  [[nodiscard]] fs::path metrics() const { return folder_.path() / "metrics.jsonl"; }
  [[nodiscard]] fs::path checkpoints() const { return folder_.path() / "checkpoints"; }

  [[nodiscard]] config::RunConfig config(const ChangeConfig& change = {}) const {
    config::RunConfig config;
    config.model.num_layers = 1;
    config.model.hidden_size = 16;
    config.model.num_attention_heads = 2;
    config.model.max_position_embeddings = kSequence;
    config.model.seq_length = kSequence;
    config.model.vocab_size = kIds;
    config.model.make_vocab_size_divisible_by = 8;
    config.data.data_path = {corpus()};
    config.data.split = "80,10,10";
    config.data.num_workers = 0;
    config.data.tokenizer_type = "NullTokenizer";
    config.training.micro_batch_size = 2;
    config.training.global_batch_size = 4;
    config.training.train_iters = 6;
    config.training.eval_interval = 3;
    config.training.eval_iters = 2;
    config.training.log_interval = 2;
    config.training.metrics_file = metrics().string();
    config.optimizer.lr = 0.01;
    if (change) change(config);
    config::resolve(config);
    return config;
  }

 private:
  TempFolder folder_;
};

// On threads when the world has several ranks; what it printed goes to `printed`.
inline TrainerReport run(const config::RunConfig& config, std::string* printed = nullptr,
                         const TrainerHooks& hooks = {}) {
  TrainerReport report;
  testing::internal::CaptureStdout();
  try {
    comm::run_threads(
        {.world_size = config.parallel.world_size, .timeout = std::chrono::milliseconds(60'000)},
        [&](comm::Backend& backend) {
          TrainerReport mine = run_training(config, backend, hooks);
          if (backend.rank() == 0) report = std::move(mine);
        });
  } catch (...) {
    (void)testing::internal::GetCapturedStdout();
    throw;
  }
  const std::string text = testing::internal::GetCapturedStdout();
  if (printed != nullptr) *printed = text;
  return report;
}

inline std::vector<std::int64_t> iterations(const fs::path& metrics, const char* kind,
                                            const char* value = "lm_loss") {
  std::vector<std::int64_t> result;
  for (const MetricsPoint& point : read_metrics(metrics, kind, value)) {
    result.push_back(point.iteration);
  }
  return result;
}

// One value of each line of a kind.
inline std::vector<double> series(const fs::path& metrics, const char* kind, const char* value) {
  std::vector<double> result;
  for (const MetricsPoint& point : read_metrics(metrics, kind, value)) {
    result.push_back(point.value);
  }
  return result;
}

// The configuration with a change, and another one after it.
inline ChangeConfig both(ChangeConfig first, ChangeConfig second) {
  return [first = std::move(first), second = std::move(second)](config::RunConfig& config) {
    first(config);
    second(config);
  };
}

// --save (and --load) in a folder, every `interval` steps.
inline ChangeConfig saving(const fs::path& folder, bool load, std::int64_t interval = 1000) {
  return [=](config::RunConfig& config) {
    config.checkpoint.save = folder.string();
    config.checkpoint.save_interval = interval;
    if (load) config.checkpoint.load = folder.string();
  };
}

inline std::string state_hash(const fs::path& folder, std::int64_t iteration) {
  checkpoint::CheckpointReader reader(folder / checkpoint::iteration_folder(iteration));
  return checkpoint::state_hash(reader);
}

}  // namespace pentatron::training::testing_support
