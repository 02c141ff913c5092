// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "pentatron/monitor/metrics_tail.h"
#include "pentatron/monitor/run_data.h"

namespace pentatron::monitor {

// The runs of a folder: every *.jsonl file in it and in two levels of folders below, links left
// out. One thread reads (read_some, read_all); answers may be asked for from any thread and wait
// for no file.
class RunStore final {
 public:
  static constexpr std::size_t kMaxRuns = 64;
  // Training records of all runs; beyond it the longest run is thinned out (RunData). 70 bytes
  // each.
  static constexpr std::size_t kMaxRecords = 3'000'000;

  // kIo unless `folder` is one. `max_records`: for tests.
  explicit RunStore(std::filesystem::path folder, std::size_t max_records = kMaxRecords);

  // Looks for new files, then reads up to MetricsTail::kMaxBytesPerPoll of each run. True: more
  // is there to read at once.
  bool read_some();
  // Until there is no more.
  void read_all();

  // {"runs": [{"id", "name", "bad_lines", "read_share" (of the file), and RunData::summary_json},
  // ...]}
  [[nodiscard]] std::string runs_json();
  // What a page knows of a run.
  struct Wanted {
    std::int64_t id = 0;
    std::int64_t generation = -1;
    double width = -1;
    double since = 0;
  };
  // {"runs": [{"id", and RunData::series_json}, ...]}; runs that do not exist are left out.
  [[nodiscard]] std::string series_json(const std::vector<Wanted>& runs, SeriesRequest request);
  // {"id", RunData::about_json, "samples": RunData::samples_json}; empty text: no such run.
  [[nodiscard]] std::string about_json(std::int64_t id);
  // Pieces of the run's table, the head first; nothing for a run that does not exist. A run that
  // starts anew meanwhile ends the table.
  [[nodiscard]] std::function<std::string()> csv(std::int64_t id);
  // "" for a run that does not exist.
  [[nodiscard]] std::string name(std::int64_t id);

 private:
  struct Run {
    Run(std::filesystem::path file, std::string shown)
        : path(file), name(std::move(shown)), tail(std::move(file)) {}
    std::filesystem::path path;
    std::string name;
    MetricsTail tail;  // the reading thread's
    RunData data = {};
    // As the last read left it.
    std::int64_t bad_lines = 0;
    std::int64_t changed_at = 0;
    double read_share = 0;
    bool gone = true;
  };

  void find_files();
  bool read_news(Run& run);
  void make_room();
  [[nodiscard]] Run* find(std::int64_t id);

  std::filesystem::path folder_;
  std::size_t max_records_;
  std::mutex mutex_;      // of all below but the tails
  std::deque<Run> runs_;  // the id is the index; runs are never removed
};

}  // namespace pentatron::monitor
