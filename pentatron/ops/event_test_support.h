// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/ops/unit_events.h"

// Only tests include it.
namespace pentatron::ops::testing {

// Notes a unit's events: fb and fe around its forward, bb and be around its backward.
class EventNotes : public UnitEventSink {
 public:
  void on_forward_begin(int unit) override { note("fb", unit); }
  void on_forward_end(int unit) override { note("fe", unit); }
  void on_backward_begin(int unit) override { note("bb", unit); }
  void on_backward_end(int unit) override { note("be", unit); }
  std::string text;

 protected:
  virtual void note(const char* what, int unit) { text += what + std::to_string(unit) + " "; }
};

}  // namespace pentatron::ops::testing
