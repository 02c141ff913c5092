// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"

namespace pentatron::training {
namespace {

bool names_rank(const std::vector<std::string>& ranks, std::int64_t rank) {
  return ranks.empty() ||
         std::find(ranks.begin(), ranks.end(), std::to_string(rank)) != ranks.end();
}

// The innermost of the unit spans at a time. Spans of one thread lie beside or inside each other.
class UnitAt {
 public:
  explicit UnitAt(const std::vector<TraceSpan>& host) {
    for (const TraceSpan& span : host) {
      if (span.lane == kUnitLane) spans_.push_back(&span);
    }
    // An outer span that begins with an inner one stands before it.
    std::sort(spans_.begin(), spans_.end(), [](const TraceSpan* a, const TraceSpan* b) {
      return std::pair(a->begin_ns, -a->end_ns) < std::pair(b->begin_ns, -b->end_ns);
    });
    outer_.assign(spans_.size(), kNone);
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      while (!open.empty() && spans_[open.back()]->end_ns <= spans_[i]->begin_ns) open.pop_back();
      if (!open.empty()) outer_[i] = open.back();
      open.push_back(i);
    }
  }

  [[nodiscard]] std::string name(std::int64_t time_ns) const {
    const auto after = std::upper_bound(
        spans_.begin(), spans_.end(), time_ns,
        [](std::int64_t time, const TraceSpan* span) { return time < span->begin_ns; });
    if (after == spans_.begin()) return {};
    for (auto at = static_cast<std::size_t>(after - spans_.begin()) - 1; at != kNone;
         at = outer_[at]) {
      if (time_ns < spans_[at]->end_ns) return spans_[at]->name;
    }
    return {};
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<const TraceSpan*> spans_;
  std::vector<std::size_t> outer_;  // of each: the span around it
};

}  // namespace

UnitTrace::UnitTrace(Trace& trace, const std::vector<nn::Unit>& units) : trace_(trace) {
  for (const nn::Unit& unit : units) names_.push_back(unit.name);
}

void UnitTrace::begin(int unit, Direction direction) {
  if (!trace_.recording()) return;
  open_.push_back({.unit = unit, .direction = direction, .begin_ns = trace_.now_ns()});
}

void UnitTrace::end(int unit, Direction direction) {
  // One that began before the record did is left out.
  if (open_.empty() || open_.back().unit != unit || open_.back().direction != direction) return;
  const std::string& name = names_.at(static_cast<std::size_t>(unit));
  trace_.add({.lane = std::string(kUnitLane),
              .name = (direction == kForward ? "forward " : "backward ") + name,
              .begin_ns = open_.back().begin_ns,
              .end_ns = trace_.now_ns()});
  open_.pop_back();
}

std::vector<TraceSpan> with_device_spans(std::vector<TraceSpan> host,
                                         const std::vector<tensor::DeviceSpan>& device) {
  std::vector<TraceSpan> streams;
  streams.reserve(device.size());
  const UnitAt units(host);
  for (const tensor::DeviceSpan& span : device) {
    streams.push_back({.lane = fmt::format("GPU stream {}", span.stream),
                       .name = span.name,
                       .begin_ns = span.begin_ns,
                       .end_ns = span.end_ns,
                       .bytes = span.bytes,
                       .unit = span.launched_ns > 0 ? units.name(span.launched_ns) : ""});
  }
  host.insert(host.end(), std::move_iterator(streams.begin()), std::move_iterator(streams.end()));
  return host;
}

RunTrace::RunTrace(const config::RunConfig& config, std::int64_t rank, Device device)
    : folder_(config.training.trace),
      rank_(rank),
      first_(config.training.profile_step_start),
      end_(config.training.profile_step_end),
      device_(device),
      traced_(!folder_.empty() && names_rank(config.training.profile_ranks, rank)),
      process_(fmt::format("rank {}", rank)) {
  if (!traced_) return;
  std::filesystem::create_directories(folder_);
  device_trace_ = tensor::make_device_trace(device);
}

RunTrace::~RunTrace() = default;

void RunTrace::before_iteration(std::int64_t completed) {
  if (!traced_ || written_ || trace_.recording() || completed < first_ || completed >= end_) return;
  if (device_trace_ != nullptr) device_trace_->start();
  trace_.set_recording(true);
}

void RunTrace::after_iteration(std::int64_t completed) {
  if (trace_.recording() && completed >= end_) write();
}

void RunTrace::finish() {
  if (trace_.recording()) {
    write();
  } else if (traced_ && !written_) {
    log::warn(
        "nothing was traced: none of the iterations {} to {} (--profile-step-start, "
        "--profile-step-end) was run",
        first_ + 1, end_);
  }
}

void RunTrace::write() {
  trace_.set_recording(false);
  written_ = true;
  std::vector<tensor::DeviceSpan> device;
  if (device_trace_ != nullptr) device = device_trace_->stop();
  const std::filesystem::path path =
      std::filesystem::path(folder_) / fmt::format("rank-{:05}.json", rank_);
  write_trace(path, rank_, process_, with_device_spans(trace_.take(), device));
  log::info("wrote the trace of iterations {} to {} to {}", first_ + 1, end_, path.string());
}

}  // namespace pentatron::training
