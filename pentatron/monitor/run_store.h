// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "pentatron/base/timer.h"
#include "pentatron/monitor/metrics_tail.h"

namespace pentatron::monitor {

// The runs of a folder: every *.jsonl file in it and in two levels of folders below, links left
// out. Safe from several threads.
class RunStore final {
 public:
  static constexpr std::size_t kMaxRuns = 64;
  // Beyond it every second training record is dropped, again and again: the page draws no more
  // points than it has pixels.
  static constexpr std::size_t kMaxRecords = 200'000;
  static constexpr std::size_t kMaxRecordsPerAnswer = 20'000;
  static constexpr std::size_t kMaxSamples = 500;
  // Validation sets of a run; records of further ones are dropped.
  static constexpr std::size_t kMaxSets = 24;

  // kIo unless `folder` is one.
  explicit RunStore(std::filesystem::path folder);

  // Looks for new files and new lines, at most once in `min_interval_seconds`.
  void refresh(double min_interval_seconds);

  // {"runs": [{"id", "name", "generation", "num_records", "bad_lines", "age_seconds"}, ...]}
  [[nodiscard]] std::string runs_json();
  // Records of a run from number `from` of `generation` on; of another generation than the run's
  // current one: from its start. {"run", "generation", "from", "next", "num_records", "records":
  // [["t", iteration, values in the order of kFields, null for NaN], ["v", ..., and the set's name
  // where there are several], ["e", ...] (test), ["s", iteration, prompt, text], ...]}. Empty text
  // for a run that does not exist.
  [[nodiscard]] std::string records_json(std::int64_t run, std::int64_t generation,
                                         std::int64_t from);

 private:
  struct Run {
    Run(std::filesystem::path file, std::string shown)
        : path(file), name(std::move(shown)), tail(std::move(file)) {}
    std::filesystem::path path;
    std::string name;
    MetricsTail tail;
    std::int64_t generation = 1;  // another one: forget what you were told before
    std::int64_t stride = 1;      // of the training records that are kept
    std::size_t num_samples = 0;
    std::set<std::string> sets;
    std::vector<Record> records;
    bool gone = false;
  };

  void find_files();
  void read_news(Run& run);
  static void keep(Run& run, Record record);
  static void thin_out(Run& run);

  std::filesystem::path folder_;
  std::mutex mutex_;
  std::deque<Run> runs_;  // the id is the index; runs are never removed
  Timer since_refresh_;
  bool refreshed_ = false;
};

}  // namespace pentatron::monitor
