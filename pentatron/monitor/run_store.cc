// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/run_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <system_error>

#include "pentatron/base/error.h"

namespace pentatron::monitor {
namespace {

namespace fs = std::filesystem;

// Names of files need not be UTF-8.
std::string dump(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "run 9" before "run 10", as the page's table has it: runs are numbered in this order.
bool name_before(const std::string& a, const std::string& b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    while (i < a.size() && a[i] == '0') ++i;
    while (j < b.size() && b[j] == '0') ++j;
    const auto digits = [](const std::string& text, std::size_t from) {
      std::size_t end = from;
      while (end < text.size() && is_digit(text[end])) ++end;
      return end - from;
    };
    const std::size_t count = digits(a, i);
    if (count != digits(b, j)) return count < digits(b, j);
    if (const int order = a.compare(i, count, b, j, count); order != 0) return order < 0;
    i += count;
    j += count;
  }
  if (i < a.size() || j < b.size()) return i == a.size();
  return a < b;  // "1" and "01"
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
  std::sort(entries.begin(), entries.end(), [](const auto& x, const auto& y) {
    return name_before(x.path().filename().string(), y.path().filename().string());
  });
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

RunStore::RunStore(std::filesystem::path folder, std::size_t max_records)
    : folder_(std::move(folder)), max_records_(max_records) {
  PENTATRON_CHECK(fs::is_directory(folder_), kIo,
                  "{} is no folder; give the one that holds the "
                  "--metrics-file of a run",
                  folder_.string());
}

bool RunStore::read_some() {
  find_files();
  bool more = false;
  // The reading thread alone adds runs, so it may go through them without the lock.
  for (Run& run : runs_) more = read_news(run) || more;
  make_room();
  return more;
}

void RunStore::read_all() {
  while (read_some()) {
  }
}

void RunStore::find_files() {
  constexpr int kLevels = 2;
  std::vector<fs::path> found;
  collect(folder_, kLevels, found);
  const std::lock_guard lock(mutex_);
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

bool RunStore::read_news(Run& run) {
  std::vector<Record> records;
  const MetricsTail::Result result = run.tail.poll(records);  // without the lock: it reads a file
  const bool gone = result == MetricsTail::Result::kGone;
  const std::lock_guard lock(mutex_);
  if (result == MetricsTail::Result::kStartedAnew || (gone && !run.gone)) run.data.clear();
  run.gone = gone;
  run.bad_lines = run.tail.num_bad_lines();
  run.changed_at = run.tail.changed_at();
  const auto size = static_cast<double>(run.tail.size());
  run.read_share = size > 0 ? static_cast<double>(run.tail.bytes_read()) / size : 1;
  for (Record& record : records) run.data.add(std::move(record));
  return !gone && run.tail.bytes_read() < run.tail.size();
}

void RunStore::make_room() {
  const std::lock_guard lock(mutex_);
  while (true) {
    std::size_t all = 0;
    Run* longest = nullptr;
    for (Run& run : runs_) {
      const std::size_t size = run.data.num_records();
      all += size;
      if (longest == nullptr || size > longest->data.num_records()) longest = &run;
    }
    if (all <= max_records_ || longest == nullptr) return;
    longest->data.thin_out();
  }
}

RunStore::Run* RunStore::find(std::int64_t id) {
  if (id < 0 || static_cast<std::size_t>(id) >= runs_.size()) return nullptr;
  return &runs_[static_cast<std::size_t>(id)];
}

std::string RunStore::runs_json() {
  const std::lock_guard lock(mutex_);
  std::string out = "{\"runs\":[";
  const std::int64_t now = std::time(nullptr);
  for (std::size_t id = 0; id < runs_.size(); ++id) {
    Run& run = runs_[id];
    if (run.gone) continue;
    if (out.back() != '[') out += ',';
    const auto age = static_cast<double>(std::max<std::int64_t>(0, now - run.changed_at));
    out += fmt::format(R"({{"id":{},"name":{},"bad_lines":{},"read_share":{:.4g},{}}})", id,
                       dump(run.name), run.bad_lines, run.read_share, run.data.summary_json(age));
  }
  return out + "]}";
}

std::string RunStore::series_json(const std::vector<Wanted>& runs, SeriesRequest request) {
  std::string out = "{\"runs\":[";
  for (const Wanted& wanted : runs) {
    const std::lock_guard lock(mutex_);  // for each: the reading thread has its turn between
    const Run* run = find(wanted.id);
    if (run == nullptr || run->gone) continue;
    request.generation = wanted.generation;
    request.width = wanted.width;
    request.since = wanted.since;
    if (out.back() != '[') out += ',';
    out += fmt::format(R"({{"id":{},{}}})", wanted.id, run->data.series_json(request));
  }
  return out + "]}";
}

std::string RunStore::about_json(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  const Run* run = find(id);
  if (run == nullptr || run->gone) return {};
  return fmt::format(R"({{"id":{},{},"samples":{}}})", id, run->data.about_json(),
                     run->data.samples_json());
}

std::function<std::string()> RunStore::csv(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  const Run* run = find(id);
  if (run == nullptr || run->gone) return {};
  return [this, id, generation = run->data.generation(), from = std::size_t{0},
          head = true]() mutable -> std::string {
    const std::lock_guard here(mutex_);
    if (head) {
      head = false;
      return RunData::csv_head();
    }
    const Run* asked = find(id);
    if (asked == nullptr || asked->data.generation() != generation) return {};
    std::string rows = asked->data.csv_rows(from);
    from += static_cast<std::size_t>(std::count(rows.begin(), rows.end(), '\n'));
    return rows;
  };
}

std::string RunStore::name(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  const Run* run = find(id);
  return run == nullptr ? "" : run->name;
}

}  // namespace pentatron::monitor
