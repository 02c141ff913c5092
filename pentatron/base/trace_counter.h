// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/base/trace.h"

namespace pentatron {

// Lane of counters: its spans have no length, and their bytes are what is there from then on. They
// become counter events, which Perfetto draws as a curve under the process, one a name.
inline constexpr std::string_view kCounterLane = "counters";

// `trace` may be null; records only while it is told to.
inline void add_counter(Trace* trace, std::string_view name, std::int64_t bytes) {
  if (trace == nullptr || !trace->recording()) return;
  const std::int64_t now = trace->now_ns();
  trace->add({.lane = std::string(kCounterLane),
              .name = std::string(name),
              .begin_ns = now,
              .end_ns = now,
              .bytes = bytes});
}

}  // namespace pentatron
