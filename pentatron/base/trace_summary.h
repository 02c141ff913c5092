// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/base/trace.h"

// Where the time of a trace went. Times are nanoseconds.
namespace pentatron {

struct TraceShare {
  std::string name;
  std::int64_t count = 0;
  std::int64_t total_ns = 0;
};

struct TraceSummary {
  std::int64_t window_ns = 0;  // from the first begin to the last end
  // Of GPU streams: when any of them ran something, and the same without collectives (NCCL's
  // kernels); 0 in a trace of a CPU.
  std::int64_t gpu_busy_ns = 0;
  std::int64_t gpu_compute_ns = 0;
  // Largest first. Kernels by name; ops by what those names stand for (kernel_op.h); units by the
  // GPU's time of what they launched; actions of the schedule and phases by the host's time (spans
  // of phases lie inside each other).
  std::vector<TraceShare> kernels;
  std::vector<TraceShare> ops;
  std::vector<TraceShare> units;
  std::vector<TraceShare> actions;
  std::vector<TraceShare> phases;
};

[[nodiscard]] TraceSummary summarize_trace(const TraceFile& file);

// Tables for a screen; at most `most` lines a table.
[[nodiscard]] std::string format_trace_summary(const TraceFile& file, const TraceSummary& summary,
                                               std::size_t most);

}  // namespace pentatron
