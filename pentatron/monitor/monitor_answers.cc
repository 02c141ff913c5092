// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/monitor_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "pentatron/monitor/page.h"

namespace pentatron::monitor {
namespace {

constexpr const char* kJson = "application/json";

HttpAnswer refusal(int status, const std::string& why) {
  return {.status = status, .body = why + "\n"};
}

// Calls visit(part) for each part between separators; false ends with false.
template <typename Visit>
bool for_each_part(std::string_view text, char separator, Visit&& visit) {
  while (true) {
    const std::size_t end = text.find(separator);
    if (!visit(text.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() &&
         std::isfinite(static_cast<double>(number));
}

// "ID:GENERATION:WIDTH:SINCE,..."; of the last three all or none.
bool read_wanted(const std::string& text, std::vector<RunStore::Wanted>& runs) {
  return for_each_part(text, ',', [&](std::string_view run) {
    RunStore::Wanted wanted;
    std::size_t place = 0;
    const bool good = for_each_part(run, ':', [&](std::string_view part) {
      switch (place++) {
        case 0:
          return read_number(part, wanted.id);
        case 1:
          return read_number(part, wanted.generation);
        case 2:
          return read_number(part, wanted.width);
        case 3:
          return read_number(part, wanted.since);
        default:
          return false;
      }
    });
    runs.push_back(wanted);
    return good && (place == 1 || place == 4) && runs.size() <= RunStore::kMaxRuns;
  });
}

bool read_fields(const std::string& text, std::vector<std::size_t>& fields) {
  return for_each_part(text, ',', [&](std::string_view name) {
    const auto* const found = std::find(kFields.begin(), kFields.end(), name);
    fields.push_back(static_cast<std::size_t>(found - kFields.begin()));
    return found != kFields.end() && fields.size() <= kFields.size();
  });
}

HttpAnswer series(RunStore& store, const HttpRequest& request) {
  constexpr std::int64_t kMostBuckets = 4000;
  std::vector<RunStore::Wanted> runs;
  if (!read_wanted(request.text("runs"), runs)) {
    return refusal(400, "runs: ID or ID:GENERATION:WIDTH:SINCE, with commas between");
  }
  SeriesRequest wanted;
  if (!read_fields(request.text("fields"), wanted.fields)) {
    return refusal(400, fmt::format("fields: some of {}", fmt::join(kFields, ",")));
  }
  const std::string axis = request.text("axis");
  if (axis != "iteration" && axis != "tokens" && axis != "time") {
    return refusal(400, "axis: iteration, tokens or time");
  }
  wanted.axis = axis == "tokens" ? Axis::kTokens : axis == "time" ? Axis::kTime : Axis::kIteration;
  wanted.from = request.number("from");
  wanted.to = request.number("to");
  const std::int64_t buckets = request.integer("buckets").value_or(0);
  wanted.smoothing = request.number("smoothing").value_or(0);
  if (buckets < 1 || buckets > kMostBuckets || wanted.smoothing < 0 || wanted.smoothing >= 1) {
    return refusal(400,
                   fmt::format("buckets: 1 to {}; smoothing: from 0 to below 1", kMostBuckets));
  }
  // Whatever is asked for, an answer has some ten megabytes at most.
  constexpr std::size_t kMostInAll = 400'000;
  wanted.num_buckets = std::min(static_cast<std::size_t>(buckets),
                                kMostInAll / (runs.size() * wanted.fields.size()));
  return {.type = kJson, .body = store.series_json(runs, std::move(wanted))};
}

// Of a run's name what may stand in a header.
std::string csv_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        return !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                 c == '-' || c == '_');
      },
      '_');
  constexpr std::size_t kLongest = 80;
  return name.substr(0, kLongest) + ".csv";
}

HttpAnswer of_run(RunStore& store, const HttpRequest& request, bool as_csv) {
  const auto run = request.integer("run");
  if (!run) return refusal(400, "run: a number of /api/runs");
  if (as_csv) {
    auto pieces = store.csv(*run);
    if (!pieces) return refusal(404, "no such run");
    return {.type = "text/csv; charset=utf-8",
            .file_name = csv_name(store.name(*run)),
            .next_piece = std::move(pieces)};
  }
  std::string about = store.about_json(*run);
  if (about.empty()) return refusal(404, "no such run");
  return {.type = kJson, .body = std::move(about)};
}

const char* type_of(std::string_view name) {
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "text/html; charset=utf-8";
}

}  // namespace

HttpAnswer answer_request(RunStore& store, const HttpRequest& request) {
  const std::string& path = request.path;
  if (path == "/api/runs") return {.type = kJson, .body = store.runs_json()};
  if (path == "/api/series") return series(store, request);
  if (path == "/api/run") return of_run(store, request, false);
  if (path == "/api/csv") return of_run(store, request, true);
  const std::string_view name = path == "/" ? "page.html" : std::string_view(path).substr(1);
  for (const EmbeddedFile& file : page_files()) {
    if (file.name != name) continue;
    return {.type = type_of(name), .body = std::string(file.content)};
  }
  return refusal(404, "nothing here");
}

bool is_loopback(const std::string& host) {
  const bool digits = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" || (digits && host.starts_with("127."));
}

}  // namespace pentatron::monitor
