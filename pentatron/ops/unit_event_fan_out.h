// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/ops/unit_events.h"

namespace pentatron::ops {

// One sink for several: tells each event to all subscribers, in the order of subscription. Every
// rank subscribes the same in the same order, since subscribers may call collectives.
class UnitEventFanOut final : public UnitEventSink {
 public:
  // The sink must live as long as events come.
  void add(UnitEventSink& sink) { sinks_.push_back(&sink); }

  void on_forward_begin(int unit) override {
    for (UnitEventSink* sink : sinks_) sink->on_forward_begin(unit);
  }
  void on_forward_end(int unit) override {
    for (UnitEventSink* sink : sinks_) sink->on_forward_end(unit);
  }
  void on_backward_begin(int unit) override {
    for (UnitEventSink* sink : sinks_) sink->on_backward_begin(unit);
  }
  void on_backward_end(int unit) override {
    for (UnitEventSink* sink : sinks_) sink->on_backward_end(unit);
  }

 private:
  std::vector<UnitEventSink*> sinks_;
};

}  // namespace pentatron::ops
