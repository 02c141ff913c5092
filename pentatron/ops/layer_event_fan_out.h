// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/ops/backward.h"

namespace pentatron::ops {

// One sink for several: tells each event to all subscribers, in the order of subscription. Every
// rank subscribes the same in the same order, since subscribers may call collectives.
class LayerEventFanOut final : public LayerEventSink {
 public:
  // The sink must live as long as events come.
  void add(LayerEventSink& sink) { sinks_.push_back(&sink); }

  void on_forward_begin(int layer) override {
    for (LayerEventSink* sink : sinks_) sink->on_forward_begin(layer);
  }
  void on_forward_end(int layer) override {
    for (LayerEventSink* sink : sinks_) sink->on_forward_end(layer);
  }
  void on_backward_begin(int layer) override {
    for (LayerEventSink* sink : sinks_) sink->on_backward_begin(layer);
  }
  void on_backward_end(int layer) override {
    for (LayerEventSink* sink : sinks_) sink->on_backward_end(layer);
  }

 private:
  std::vector<LayerEventSink*> sinks_;
};

}  // namespace pentatron::ops
