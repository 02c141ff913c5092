// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What one rank did and when, written as Chrome trace events (JSON), which Perfetto and
// chrome://tracing show. Times are nanoseconds since the Unix epoch, so that the traces of ranks on
// one machine lie on one axis.
namespace pentatron {

struct TraceSpan {
  std::string lane;  // "schedule", "units", "stream 7": one row each
  std::string name;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  // Left out of the file below 0.
  std::int64_t chunk = -1;
  std::int64_t micro_batch = -1;
  std::int64_t bytes = -1;
  std::string unit = {};  // of a kernel: the unit whose code launched it; empty: none known
};

// Spans of one rank; not shared between threads. It records only while it is told to, and a scope
// that meets it at other times costs a comparison.
class Trace final {
 public:
  Trace();

  [[nodiscard]] bool recording() const { return recording_; }
  void set_recording(bool on) { recording_ = on; }
  // Wall-clock time that runs as evenly as the steady clock.
  [[nodiscard]] std::int64_t now_ns() const;
  void add(TraceSpan span) { spans_.push_back(std::move(span)); }
  [[nodiscard]] const std::vector<TraceSpan>& spans() const { return spans_; }
  [[nodiscard]] std::vector<TraceSpan> take() { return std::exchange(spans_, {}); }

 private:
  bool recording_ = false;
  std::int64_t offset_ns_;  // wall clock minus steady clock at construction
  std::vector<TraceSpan> spans_;
};

// A span from here to the end of the scope. `trace` may be null.
class TraceScope final {
 public:
  struct Labels {
    std::int64_t chunk = -1;
    std::int64_t micro_batch = -1;
    std::int64_t bytes = -1;
  };
  TraceScope(Trace* trace, std::string_view lane, std::string_view name)
      : TraceScope(trace, lane, name, Labels{}) {}
  TraceScope(Trace* trace, std::string_view lane, std::string_view name, Labels labels)
      : trace_(trace != nullptr && trace->recording() ? trace : nullptr),
        lane_(lane),
        name_(name),
        labels_(labels),
        begin_ns_(trace_ != nullptr ? trace_->now_ns() : 0) {}
  ~TraceScope() {
    if (trace_ != nullptr) finish();
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  void finish();

  Trace* trace_;
  std::string_view lane_;
  std::string_view name_;
  Labels labels_;
  std::int64_t begin_ns_;
};

// `process` names the rank: "rank 3 (tp 1, pp 0)". Lanes come in the order of their first span. kIo
// errors; the file is there whole or not at all.
void write_trace(const std::filesystem::path& path, std::int64_t rank, std::string_view process,
                 const std::vector<TraceSpan>& spans);

// The rank and the spans of a file that write_trace() wrote. Anything else: kData, naming the file
// and what is wrong. Files above 1 GiB are refused.
struct TraceFile {
  std::int64_t rank = 0;
  std::string process;
  std::vector<TraceSpan> spans;
};
[[nodiscard]] TraceFile read_trace(const std::filesystem::path& path);

}  // namespace pentatron
