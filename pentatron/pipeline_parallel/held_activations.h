// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "pentatron/base/trace_counter.h"
#include "pentatron/pipeline_parallel/schedule.h"

namespace pentatron::pipeline_parallel {

// Name of the counter in a trace: bytes of the forwards of which something is still to be done.
inline constexpr std::string_view kInFlightCounter = "activations in flight";

// What a rank's forwards have left for their backwards, micro-batch by micro-batch.
class HeldActivations final {
 public:
  void keep(Trace* trace, const Action& action, std::int64_t bytes) {
    held_[{action.chunk, action.micro_batch}] = bytes;
    total_ += bytes;
    add_counter(trace, kInFlightCounter, total_);
  }
  // Of one that was not counted (the record began behind its forward): nothing.
  void release(Trace* trace, const Action& action) {
    const auto held = held_.extract({action.chunk, action.micro_batch});
    if (held.empty()) return;
    total_ -= held.mapped();
    add_counter(trace, kInFlightCounter, total_);
  }

 private:
  std::map<std::pair<int, int>, std::int64_t> held_;
  std::int64_t total_ = 0;
};

}  // namespace pentatron::pipeline_parallel
