// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/base/trace.h"
#include "pentatron/config/config.h"
#include "pentatron/nn/unit.h"
#include "pentatron/ops/unit_events.h"
#include "pentatron/tensor/device_trace.h"

// A rank's trace of a few iterations (--trace): what its host did, and what its GPU ran.
namespace pentatron::training {

// Lane of the units' forwards and backwards.
inline constexpr std::string_view kUnitLane = "units";

// Spans "forward NAME" and "backward NAME" of a rank's units, which may stand inside each other
// (recomputation). The trace outlives it.
class UnitTrace final : public ops::UnitEventSink {
 public:
  UnitTrace(Trace& trace, const std::vector<nn::Unit>& units);
  void on_forward_begin(int unit) override { begin(unit, kForward); }
  void on_forward_end(int unit) override { end(unit, kForward); }
  void on_backward_begin(int unit) override { begin(unit, kBackward); }
  void on_backward_end(int unit) override { end(unit, kBackward); }

 private:
  enum Direction { kForward, kBackward };
  struct Open {
    int unit;
    Direction direction;
    std::int64_t begin_ns;
  };
  void begin(int unit, Direction direction);
  void end(int unit, Direction direction);

  Trace& trace_;
  std::vector<std::string> names_;
  std::vector<Open> open_;
};

// Names the units whose code launched what a GPU ran: the innermost span of kUnitLane at the time
// of the launch. Spans of streams get the lane "GPU stream N".
[[nodiscard]] std::vector<TraceSpan> with_device_spans(
    std::vector<TraceSpan> host, const std::vector<tensor::DeviceSpan>& device);

// Begins and ends the record by iterations and writes DIR/rank-NNNNN.json, once a run.
class RunTrace final {
 public:
  // Nothing without --trace, or on a rank that --profile-ranks does not name.
  RunTrace(const config::RunConfig& config, std::int64_t rank, Device device);
  ~RunTrace();
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  // Null where nothing is traced.
  [[nodiscard]] Trace* trace() { return traced_ ? &trace_ : nullptr; }
  // `completed`: iterations of the whole run so far. kCuda: kernels cannot be recorded.
  void before_iteration(std::int64_t completed);
  // Writes the file once --profile-step-end iterations are complete. kIo.
  void after_iteration(std::int64_t completed);
  // The run ends: writes what was recorded; says so where no iteration was.
  void finish();
  void set_process(std::string label) { process_ = std::move(label); }

 private:
  void write();

  std::string folder_;
  std::int64_t rank_;
  std::int64_t first_;
  std::int64_t end_;
  Device device_;
  bool traced_ = false;
  bool written_ = false;
  std::string process_;
  Trace trace_;
  std::unique_ptr<tensor::DeviceTrace> device_trace_;
};

}  // namespace pentatron::training
