// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/trace.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/kernel_op.h"
#include "pentatron/base/trace_counter.h"

namespace pentatron {
namespace {

constexpr double kNanosecondsPerMicrosecond = 1000.0;
constexpr std::size_t kLargestFile = std::size_t{1} << 30;

template <typename Clock>
std::int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// Lanes in the order of their first span: the number of a lane is its thread id in the file.
class Lanes {
 public:
  std::int64_t number_of(const std::string& lane) {
    const auto found = std::find(names_.begin(), names_.end(), lane);
    if (found != names_.end()) return found - names_.begin();
    names_.push_back(lane);
    return static_cast<std::int64_t>(names_.size()) - 1;
  }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

nlohmann::json name_event(const char* kind, std::int64_t rank, std::int64_t lane,
                          std::string_view name) {
  return {{"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", lane}, {"args", {{"name", name}}}};
}

nlohmann::json counter_event(const TraceSpan& span, std::int64_t rank, std::int64_t lane,
                             std::int64_t origin_ns) {
  return {{"ph", "C"},
          {"name", span.name},
          {"pid", rank},
          {"tid", lane},
          {"ts", static_cast<double>(span.begin_ns - origin_ns) / kNanosecondsPerMicrosecond},
          {"args", {{"bytes", span.bytes}}}};
}

// Times in microseconds from `origin_ns`, so that a double holds the nanoseconds.
nlohmann::json span_event(const TraceSpan& span, std::int64_t rank, std::int64_t lane,
                          std::int64_t origin_ns) {
  if (span.lane == kCounterLane) return counter_event(span, rank, lane, origin_ns);
  nlohmann::json args = nlohmann::json::object();
  if (span.chunk >= 0) args["chunk"] = span.chunk;
  if (span.micro_batch >= 0) args["micro_batch"] = span.micro_batch;
  if (span.bytes >= 0) args["bytes"] = span.bytes;
  if (!span.unit.empty()) args["unit"] = span.unit;
  if (is_device_lane(span.lane)) args["op"] = op_of_kernel(span.name);
  nlohmann::json event = {
      {"ph", "X"},
      {"name", span.name},
      {"pid", rank},
      {"tid", lane},
      {"ts", static_cast<double>(span.begin_ns - origin_ns) / kNanosecondsPerMicrosecond},
      {"dur", static_cast<double>(span.end_ns - span.begin_ns) / kNanosecondsPerMicrosecond}};
  if (!args.empty()) event["args"] = std::move(args);
  return event;
}

std::int64_t from_microseconds(const nlohmann::json& value) {
  return std::llround(value.get<double>() * kNanosecondsPerMicrosecond);
}

void read_event(const nlohmann::json& event, std::vector<std::string>& lanes, TraceFile& file) {
  const auto lane = event.at("tid").get<std::size_t>();
  if (event.at("ph").get<std::string>() == "M") {
    const std::string name = event.at("args").at("name").get<std::string>();
    if (event.at("name").get<std::string>() == "process_name") {
      file.rank = event.at("pid").get<std::int64_t>();
      file.process = name;
    } else if (lane == lanes.size()) {
      lanes.push_back(name);
    }
    return;
  }
  TraceSpan span{.lane = lanes.at(lane),
                 .name = event.at("name").get<std::string>(),
                 .begin_ns = from_microseconds(event.at("ts")),
                 .end_ns = 0};
  span.end_ns = span.begin_ns;
  if (event.at("ph") != "C") span.end_ns += from_microseconds(event.at("dur"));
  const nlohmann::json args = event.value("args", nlohmann::json::object());
  span.chunk = args.value("chunk", span.chunk);
  span.micro_batch = args.value("micro_batch", span.micro_batch);
  span.bytes = args.value("bytes", span.bytes);
  span.unit = args.value("unit", span.unit);
  file.spans.push_back(std::move(span));
}

}  // namespace

Trace::Trace()
    : offset_ns_(nanoseconds<std::chrono::system_clock>() -
                 nanoseconds<std::chrono::steady_clock>()) {}

std::int64_t Trace::now_ns() const { return nanoseconds<std::chrono::steady_clock>() + offset_ns_; }

void TraceScope::finish() {
  trace_->add({.lane = std::string(lane_),
               .name = std::string(name_),
               .begin_ns = begin_ns_,
               .end_ns = trace_->now_ns(),
               .chunk = labels_.chunk,
               .micro_batch = labels_.micro_batch,
               .bytes = labels_.bytes});
}

void write_trace(const std::filesystem::path& path, std::int64_t rank, std::string_view process,
                 const std::vector<TraceSpan>& spans) {
  Lanes lanes;
  for (const TraceSpan& span : spans) static_cast<void>(lanes.number_of(span.lane));
  // The same origin for all ranks of a machine: midnight (UTC) before the first span.
  constexpr std::int64_t kDay = std::int64_t{86'400} * 1'000'000'000;
  const std::int64_t origin_ns = spans.empty() ? 0 : spans.front().begin_ns / kDay * kDay;
  AtomicFile file(path);
  file.write(R"({"displayTimeUnit":"ms","otherData":{"origin_ns":)" + std::to_string(origin_ns) +
             "},\"traceEvents\":[\n");
  file.write(name_event("process_name", rank, 0, process).dump());
  for (std::size_t lane = 0; lane < lanes.names().size(); ++lane) {
    file.write(",\n" +
               name_event("thread_name", rank, static_cast<std::int64_t>(lane), lanes.names()[lane])
                   .dump());
  }
  for (const TraceSpan& span : spans) {
    file.write(",\n" + span_event(span, rank, lanes.number_of(span.lane), origin_ns)
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  file.write("\n]}\n");
  file.commit();
}

TraceFile read_trace(const std::filesystem::path& path) {
  const MappedFile map(path);
  PENTATRON_CHECK(map.bytes().size() <= kLargestFile, kData,
                  "{}: {} bytes are more than a trace of this program has (1 GiB)", path.string(),
                  map.bytes().size());
  const auto* text = reinterpret_cast<const char*>(map.bytes().data());
  TraceFile file;
  try {
    const nlohmann::json whole = parse_json({text, map.bytes().size()}, path.string());
    const auto origin_ns = whole.at("otherData").at("origin_ns").get<std::int64_t>();
    std::vector<std::string> lanes;
    for (const nlohmann::json& event : whole.at("traceEvents")) read_event(event, lanes, file);
    for (TraceSpan& span : file.spans) {
      span.begin_ns += origin_ns;
      span.end_ns += origin_ns;
    }
  } catch (const nlohmann::json::exception& error) {
    PENTATRON_THROW(kData, "{} is not a trace that --trace wrote: {}", path.string(), error.what());
  } catch (const std::out_of_range&) {
    PENTATRON_THROW(kData, "{} is not a trace that --trace wrote: an event of a lane without name",
                    path.string());
  }
  return file;
}

}  // namespace pentatron
