// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/run_store.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <system_error>

#include "pentatron/base/error.h"

namespace pentatron::monitor {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const char* letter(RecordKind kind) {
  switch (kind) {
    case RecordKind::kTrain:
      return "t";
    case RecordKind::kValidation:
      return "v";
    case RecordKind::kTest:
      return "e";
    case RecordKind::kSample:
      break;
  }
  return "s";
}

json to_json(const Record& record) {
  json row = json::array({letter(record.kind), record.iteration});
  if (record.kind == RecordKind::kSample) {
    row.push_back(record.prompt);
    row.push_back(record.text);
    return row;
  }
  for (const double value : record.values) {
    row.push_back(std::isfinite(value) ? json(value) : json());
  }
  if (!record.set.empty()) row.push_back(record.set);
  return row;
}

// Names of files need not be UTF-8.
std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Regular *.jsonl files below a folder, in the order of their names.
void collect(const fs::path& folder, int levels, std::vector<fs::path>& found) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    constexpr std::size_t kMaxEntries = 10'000;
    if (entries.size() == kMaxEntries) break;
    entries.push_back(*it);
  }
  std::sort(entries.begin(), entries.end());
  for (const fs::directory_entry& entry : entries) {
    if (found.size() >= RunStore::kMaxRuns) return;
    if (entry.is_symlink(error)) continue;
    if (entry.is_regular_file(error) && entry.path().extension() == ".jsonl") {
      found.push_back(entry.path());
    } else if (levels > 0 && entry.is_directory(error)) {
      collect(entry.path(), levels - 1, found);
    }
  }
}

}  // namespace

RunStore::RunStore(std::filesystem::path folder) : folder_(std::move(folder)) {
  PENTATRON_CHECK(fs::is_directory(folder_), kIo,
                  "{} is no folder; give the one that holds the "
                  "--metrics-file of a run",
                  folder_.string());
}

void RunStore::refresh(double min_interval_seconds) {
  const std::lock_guard lock(mutex_);
  if (refreshed_ && since_refresh_.seconds() < min_interval_seconds) return;
  refreshed_ = true;
  find_files();
  for (Run& run : runs_) read_news(run);
  since_refresh_.restart();
}

void RunStore::find_files() {
  constexpr int kLevels = 2;
  std::vector<fs::path> found;
  collect(folder_, kLevels, found);
  for (const fs::path& file : found) {
    if (runs_.size() >= kMaxRuns) return;
    const bool known =
        std::any_of(runs_.begin(), runs_.end(), [&](const Run& run) { return run.path == file; });
    if (known) continue;
    // "run/metrics.jsonl" is better told by its folder.
    fs::path name = file.lexically_relative(folder_).replace_extension();
    if (name.has_parent_path() && name.filename() == "metrics") name = name.parent_path();
    runs_.emplace_back(file, name.string());
  }
}

void RunStore::read_news(Run& run) {
  std::vector<Record> records;
  while (true) {
    records.clear();
    const MetricsTail::Result result = run.tail.poll(records);
    if (result == MetricsTail::Result::kStartedAnew ||
        (result == MetricsTail::Result::kGone && !run.gone)) {
      if (!run.records.empty()) ++run.generation;
      run.records.clear();
      run.stride = 1;
      run.num_samples = 0;
      run.sets.clear();
    }
    run.gone = result == MetricsTail::Result::kGone;
    for (Record& record : records) keep(run, std::move(record));
    if (records.empty()) return;
  }
}

void RunStore::keep(Run& run, Record record) {
  if (record.kind == RecordKind::kTrain && record.iteration % run.stride != 0) return;
  if (!record.set.empty() && !run.sets.contains(record.set)) {
    if (run.sets.size() >= kMaxSets) return;
    run.sets.insert(record.set);
  }
  if (record.kind == RecordKind::kSample && ++run.num_samples > kMaxSamples) {
    run.num_samples -= kMaxSamples / 2;
    std::size_t left = kMaxSamples / 2;
    std::erase_if(run.records, [&left](const Record& r) {
      return r.kind == RecordKind::kSample && left > 0 && left-- > 0;
    });
    ++run.generation;
  }
  run.records.push_back(std::move(record));
  if (run.records.size() > kMaxRecords) thin_out(run);
}

void RunStore::thin_out(Run& run) {
  run.stride *= 2;
  std::erase_if(run.records, [&run](const Record& r) {
    return r.kind == RecordKind::kTrain && r.iteration % run.stride != 0;
  });
  // Evaluations alone, or iterations that are all even: the older half goes.
  if (run.records.size() > kMaxRecords) {
    run.records.erase(run.records.begin(),
                      run.records.begin() + static_cast<std::ptrdiff_t>(kMaxRecords / 2));
  }
  ++run.generation;
}

std::string RunStore::runs_json() {
  const std::lock_guard lock(mutex_);
  json runs = json::array();
  const std::int64_t now = std::time(nullptr);
  for (std::size_t id = 0; id < runs_.size(); ++id) {
    const Run& run = runs_[id];
    if (run.gone) continue;
    runs.push_back({{"id", id},
                    {"name", run.name},
                    {"generation", run.generation},
                    {"num_records", run.records.size()},
                    {"bad_lines", run.tail.num_bad_lines()},
                    {"age_seconds", std::max<std::int64_t>(0, now - run.tail.changed_at())}});
  }
  return dump({{"runs", std::move(runs)}});
}

std::string RunStore::records_json(std::int64_t id, std::int64_t generation, std::int64_t from) {
  const std::lock_guard lock(mutex_);
  if (id < 0 || static_cast<std::size_t>(id) >= runs_.size()) return {};
  const Run& run = runs_[static_cast<std::size_t>(id)];
  const std::size_t size = run.records.size();
  const bool same = generation == run.generation && from >= 0;
  const std::size_t begin = same ? std::min(static_cast<std::size_t>(from), size) : 0;
  const std::size_t end = std::min(size, begin + kMaxRecordsPerAnswer);
  json rows = json::array();
  for (std::size_t i = begin; i < end; ++i) rows.push_back(to_json(run.records[i]));
  return dump({{"run", id},
               {"generation", run.generation},
               {"from", begin},
               {"next", end},
               {"num_records", size},
               {"records", std::move(rows)}});
}

}  // namespace pentatron::monitor
