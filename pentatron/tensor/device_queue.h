// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "pentatron/tensor/tensor.h"

// The order of work on a device: events, second streams, recorded steps. On the CPU everything runs
// in order at once, so events are points in time and side streams do nothing.
namespace pentatron::tensor {

// A point in the device's current stream. On the CPU it is a point in time.
class Event final {
 public:
  explicit Event(Device device, bool timing = false);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  void record();                     // in the current stream
  void wait_on_stream();             // the current stream waits for it; the host does not
  void synchronize();                // the host waits for it
  [[nodiscard]] bool query() const;  // has it passed?
  // Milliseconds from `start` to this one; both with timing (else kInternal), recorded and passed.
  [[nodiscard]] double milliseconds_since(const Event& start) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// A second queue of a GPU; work queued inside a Scope runs there, concurrently with the stream that
// was current. Tensors that cross need join_before / join_after around them and must live until the
// later of both. On the CPU everything runs in order and nothing happens.
class SideStream final {
 public:
  explicit SideStream(Device device, bool high_priority = false);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // Makes the side stream current for the calling thread while it lives.
  class Scope final {
   public:
    explicit Scope(SideStream& stream);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    struct Guard;
    std::unique_ptr<Guard> guard_;
  };

  // Work queued on the side from now on waits for what the current stream holds now.
  void wait_for_current();
  // The current stream waits for what the side holds now.
  void current_waits();
  // Keeps the memory of `t` from being reused before the side has done what it holds now.
  void keep(const Tensor& t);

  struct State;

 private:
  friend class Scope;
  std::unique_ptr<State> state_;
};

// A sequence of device work that is queued once and replayed without its host code: same kernels,
// same memory. Whatever changes from step to step must stand in device memory that the recorded
// work reads; inputs are copied into tensors that live as long as the graph. A second capture, or a
// replay before the first: kInternal.
class StepGraph final {
 public:
  explicit StepGraph(Device device);  // a GPU; kUnsupported for the CPU
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Runs `step` eagerly on the graph's side stream: once or twice before capture, so that lazily
  // made things (library handles, communicators, workspaces) exist.
  void warm_up(const std::function<void()>& step);
  // Records `step`: it must not wait on the host, and its kernels do not run. kCuda error that says
  // so if it did. Blocks that earlier steps left free are given back first: the recorded step has
  // memory of its own, or that of another graph that has recorded its step: the two are replayed in
  // turns, never at once, and what one leaves in tensors that were made in its capture is lost when
  // the other runs.
  void capture(const std::function<void()>& step, const StepGraph* shares = nullptr);
  [[nodiscard]] bool captured() const;
  // Queues the recorded work after what the current stream holds; the current stream waits for it.
  void replay();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace pentatron::tensor
