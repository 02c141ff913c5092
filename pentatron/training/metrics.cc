// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/metrics.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/log.h"

namespace pentatron::training {
namespace {

using Json = nlohmann::json;

// Calls visit(line, parsed) for each whole line; a torn last line (the process was killed while
// writing) is left out. Returns how many lines were passed over because they are no objects of
// metrics; a file in which none is one: kData.
template <typename Visit>
std::int64_t for_each_line(const std::filesystem::path& path, Visit&& visit) {
  const std::string text = read_text_file(path);
  std::size_t begin = 0;
  std::int64_t good = 0;
  std::int64_t damaged = 0;
  std::int64_t first_damaged = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("iteration") && json["iteration"].is_number_integer()) {
      ++good;
      visit(line, json);
    } else if (damaged++ == 0) {
      first_damaged = good + 1;
    }
  }
  PENTATRON_CHECK(
      damaged == 0 || good > 0, kData,
      "{}:{}: expected a JSON object with an iteration, on all {} lines; is this a metrics file?",
      path.string(), first_damaged, damaged);
  return damaged;
}

// A name beside `path` that nothing has.
std::filesystem::path free_name(const std::filesystem::path& path, const char* what) {
  std::filesystem::path other;
  int number = 0;
  do {
    other = path;
    other += fmt::format(".{}_{}", what, ++number);
  } while (std::filesystem::exists(other));
  return other;
}

// Gives the file of another run a name of its own. The link fails where a file of that name came
// up meanwhile, so nothing is ever overwritten.
void set_aside(const std::filesystem::path& path) {
  for (std::int64_t number = 1;; ++number) {
    const std::filesystem::path backup = path.string() + "." + std::to_string(number);
    std::error_code error;
    std::filesystem::create_hard_link(path, backup, error);
    if (!error) {
      std::filesystem::remove(path);
    } else if (std::filesystem::exists(backup)) {
      continue;
    } else {
      rename_durably(path, backup);  // a file system without links
    }
    log::info("--metrics-file {} held another run: kept as {}", path.string(), backup.string());
    return;
  }
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t resume_iteration)
    : path_(path) {
  if (path_.empty()) return;
  // Follow a symbolic link: rename and write its target, so that the link itself survives.
  if (std::filesystem::is_symlink(path_)) path_ = std::filesystem::weakly_canonical(path_);
  if (path_.has_parent_path()) create_folders(path_.parent_path());
  if (std::filesystem::exists(path_)) {
    PENTATRON_CHECK(std::filesystem::is_regular_file(path_), kConfig,
                    "--metrics-file {} is no regular file", path_.string());
    std::string kept;
    const std::int64_t damaged =
        for_each_line(path_, [&](const std::string& line, const Json& json) {
          const bool later = json["iteration"].get<std::int64_t>() > resume_iteration;
          if (!later && !json.contains("final")) kept += line + "\n";
        });
    if (damaged > 0) {
      const std::filesystem::path copy = free_name(path_, "damaged");
      if (resume_iteration > 0) rename_durably(path_, copy);
      log::warn("--metrics-file {}: {} lines are no metrics and were passed over{}", path_.string(),
                damaged,
                resume_iteration > 0 ? fmt::format("; the file as it was: {}", copy.string()) : "");
    }
    // A run from scratch keeps what an earlier run wrote beside it rather than mixing the two.
    if (resume_iteration > 0) {
      write_file_atomically(path_, kept);
    } else if (std::filesystem::file_size(path_) > 0) {
      set_aside(path_);
    }
  }
  out_.emplace(path_, "--metrics-file");
}

void MetricsFile::write(const std::string& kind, std::int64_t iteration, const Values& values,
                        const Texts& texts) {
  if (path_.empty()) return;
  Json json;
  json["kind"] = kind;
  json["iteration"] = iteration;
  for (const auto& [name, value] : values) {
    if (std::isfinite(value)) {
      json[name] = value;
    } else {
      json[name] = std::isnan(value) ? "nan" : (value > 0 ? "inf" : "-inf");
    }
  }
  for (const auto& [name, text] : texts) json[name] = text;
  (void)out_->append(dump_json(json) + "\n");
}

void MetricsFile::write_members(const std::string& kind, std::int64_t iteration, Json members) {
  if (path_.empty()) return;
  members["kind"] = kind;
  members["iteration"] = iteration;
  members["time"] = unix_seconds();
  (void)out_->append(dump_json(members) + "\n");
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::vector<MetricsPoint> read_metrics(const std::filesystem::path& path, const std::string& kind,
                                       const std::string& name) {
  std::vector<MetricsPoint> points;
  (void)for_each_line(path, [&](const std::string&, const Json& json) {
    const auto is_text = [](const Json& value, std::string_view text) {
      return value.is_string() && value.get_ref<const std::string&>() == text;
    };
    if (!json.contains("kind") || !is_text(json["kind"], kind) || !json.contains(name)) return;
    const Json& value = json[name];
    double number = std::numeric_limits<double>::quiet_NaN();
    if (value.is_number()) {
      number = value.get<double>();
    } else if (is_text(value, "inf") || is_text(value, "-inf")) {
      number = is_text(value, "inf") ? HUGE_VAL : -HUGE_VAL;
    } else if (!is_text(value, "nan")) {
      return;
    }
    points.push_back({json["iteration"].get<std::int64_t>(), number});
  });
  return points;
}

}  // namespace pentatron::training
