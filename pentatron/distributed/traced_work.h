// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "pentatron/base/trace.h"
#include "pentatron/comm/group.h"

namespace pentatron::distributed {

// A collective of a store under way; in a trace it is a span of the lane "collectives", from its
// start to the end of the wait for it. (On GPUs the host does not wait: there the span says when it
// was queued, and the lanes of the GPU's streams when it ran.)
class TracedWork final {
 public:
  // `trace` may be null. `begin_ns` is taken before the collective is called.
  void start(comm::WorkPtr work, Trace* trace, std::string name, std::int64_t begin_ns,
             std::int64_t bytes) {
    work_ = std::move(work);
    trace_ = trace != nullptr && trace->recording() ? trace : nullptr;
    if (trace_ == nullptr) return;
    span_ = {.lane = "collectives", .name = std::move(name), .begin_ns = begin_ns, .bytes = bytes};
  }
  [[nodiscard]] bool running() const { return work_ != nullptr; }
  // Nothing where none is running.
  void wait() {
    if (work_ == nullptr) return;
    work_->wait();
    work_.reset();
    if (trace_ == nullptr) return;
    span_.end_ns = trace_->now_ns();
    trace_->add(std::move(span_));
  }

 private:
  comm::WorkPtr work_;
  Trace* trace_ = nullptr;
  TraceSpan span_;
};

}  // namespace pentatron::distributed
