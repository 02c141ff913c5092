// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/trace_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "pentatron/base/kernel_op.h"

namespace pentatron {
namespace {

constexpr double kNanosecondsPerMillisecond = 1e6;
constexpr std::size_t kNameColumns = 64;

bool is_collective(const TraceSpan& span) { return span.name.starts_with("nccl"); }

using Interval = std::pair<std::int64_t, std::int64_t>;

// Length of the union.
std::int64_t covered(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::int64_t total = 0;
  std::int64_t reached = std::numeric_limits<std::int64_t>::min();
  for (const auto& [begin, end] : intervals) {
    if (end <= reached) continue;
    total += end - std::max(begin, reached);
    reached = end;
  }
  return total;
}

class Shares {
 public:
  void add(const std::string& name, std::int64_t ns) {
    TraceShare& share = by_name_[name];
    ++share.count;
    share.total_ns += ns;
  }
  [[nodiscard]] std::vector<TraceShare> sorted() const {
    std::vector<TraceShare> list;
    for (const auto& [name, share] : by_name_) {
      list.push_back({.name = name, .count = share.count, .total_ns = share.total_ns});
    }
    std::stable_sort(list.begin(), list.end(), [](const TraceShare& a, const TraceShare& b) {
      return a.total_ns > b.total_ns;
    });
    return list;
  }

 private:
  std::map<std::string, TraceShare> by_name_;
};

std::string table(const char* title, const std::vector<TraceShare>& shares, std::int64_t whole_ns,
                  std::size_t most) {
  if (shares.empty()) return {};
  std::string text =
      fmt::format("  {:<{}} {:>8} {:>10} {:>7}\n", title, kNameColumns, "count", "ms", "share");
  for (std::size_t i = 0; i < std::min(most, shares.size()); ++i) {
    const TraceShare& s = shares[i];
    text += fmt::format("  {:<{}} {:>8} {:>10.3f} {:>6.1f}%\n", s.name.substr(0, kNameColumns),
                        kNameColumns, s.count,
                        static_cast<double>(s.total_ns) / kNanosecondsPerMillisecond,
                        100.0 * static_cast<double>(s.total_ns) /
                            static_cast<double>(std::max<std::int64_t>(1, whole_ns)));
  }
  if (shares.size() > most) text += fmt::format("  and {} more\n", shares.size() - most);
  return text;
}

}  // namespace

TraceSummary summarize_trace(const TraceFile& file) {
  TraceSummary summary;
  Shares kernels;
  Shares ops;
  Shares units;
  Shares actions;
  Shares phases;
  std::vector<Interval> busy;
  std::vector<Interval> computing;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = std::numeric_limits<std::int64_t>::min();
  for (const TraceSpan& span : file.spans) {
    const std::int64_t ns = span.end_ns - span.begin_ns;
    first = std::min(first, span.begin_ns);
    last = std::max(last, span.end_ns);
    if (is_device_lane(span.lane)) {
      kernels.add(span.name, ns);
      ops.add(std::string(op_of_kernel(span.name)), ns);
      units.add(span.unit.empty() ? "outside of units" : span.unit, ns);
      busy.emplace_back(span.begin_ns, span.end_ns);
      if (!is_collective(span)) computing.emplace_back(span.begin_ns, span.end_ns);
    } else if (span.lane == "schedule") {
      actions.add(span.name, ns);
    } else if (span.lane == "phases") {
      phases.add(span.name, ns);
    }
  }
  if (!file.spans.empty()) summary.window_ns = last - first;
  summary.gpu_busy_ns = covered(std::move(busy));
  summary.gpu_compute_ns = covered(std::move(computing));
  summary.kernels = kernels.sorted();
  summary.ops = ops.sorted();
  summary.units = units.sorted();
  summary.actions = actions.sorted();
  summary.phases = phases.sorted();
  return summary;
}

std::string format_trace_summary(const TraceFile& file, const TraceSummary& summary,
                                 std::size_t most) {
  const auto milliseconds = [](std::int64_t ns) {
    return static_cast<double>(ns) / kNanosecondsPerMillisecond;
  };
  std::string text =
      fmt::format("{}: {:.3f} ms traced\n", file.process, milliseconds(summary.window_ns));
  if (summary.gpu_busy_ns > 0) {
    const auto share = [&](std::int64_t ns) {
      return 100.0 * static_cast<double>(ns) / static_cast<double>(summary.window_ns);
    };
    text += fmt::format("  GPU busy {:.3f} ms ({:.1f}%), computing {:.3f} ms ({:.1f}%)\n",
                        milliseconds(summary.gpu_busy_ns), share(summary.gpu_busy_ns),
                        milliseconds(summary.gpu_compute_ns), share(summary.gpu_compute_ns));
  }
  text += table("kernel", summary.kernels, summary.window_ns, most);
  text += table("op (GPU time)", summary.ops, summary.window_ns, most);
  text += table("unit (GPU time)", summary.units, summary.window_ns, most);
  text += table("action (host time)", summary.actions, summary.window_ns, most);
  text += table("phase (host time)", summary.phases, summary.window_ns, most);
  return text;
}

}  // namespace pentatron
