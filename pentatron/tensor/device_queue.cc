// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/device_queue.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/tensor/device_table.h"

namespace pentatron::tensor {
namespace {

using Clock = std::chrono::steady_clock;

c10::Stream current_stream(Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

struct Event::State {
  Device device;
  bool timing;
  std::optional<c10::Event> event;  // on a GPU
  Clock::time_point time;           // on the CPU
};

Event::Event(Device device, bool timing)
    : state_(std::make_unique<State>(State{device, timing, std::nullopt, {}})) {
  if (device.is_cpu()) return;
  // The library's default flag measures no time.
  state_->event.emplace(device.type(),
                        timing ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record() {
  state_->time = Clock::now();
  if (state_->event) state_->event->record(current_stream(state_->device));
}

void Event::wait_on_stream() {
  if (state_->event) state_->event->block(current_stream(state_->device));
}

void Event::synchronize() {
  if (state_->event) state_->event->synchronize();
}

bool Event::query() const { return !state_->event || state_->event->query(); }

double Event::milliseconds_since(const Event& start) const {
  PENTATRON_CHECK(state_->timing && start.state_->timing, kInternal,
                  "time was asked of an event without timing");
  if (state_->event) return start.state_->event->elapsedTime(*state_->event);
  return std::chrono::duration<double, std::milli>(state_->time - start.state_->time).count();
}

struct SideStream::State {
  Device device;
  std::optional<c10::Stream> stream;  // on a GPU
};

SideStream::SideStream(Device device, bool high_priority)
    : state_(std::make_unique<State>(State{device, std::nullopt})) {
  if (device.is_cpu()) return;
  constexpr int kHigh = -1;
  state_->stream =
      c10::impl::VirtualGuardImpl(device.type()).getNewStream(device, high_priority ? kHigh : 0);
}
SideStream::~SideStream() = default;

void SideStream::wait_for_current() {
  if (!state_->stream) return;
  c10::Event event(state_->device.type());
  event.record(current_stream(state_->device));
  event.block(*state_->stream);
}

void SideStream::current_waits() {
  if (!state_->stream) return;
  c10::Event event(state_->device.type());
  event.record(*state_->stream);
  event.block(current_stream(state_->device));
}

void SideStream::keep(const Tensor& t) {
  if (state_->stream && t.defined() && !t.is_cpu()) t.record_stream(*state_->stream);
}

struct SideStream::Scope::Guard {
  explicit Guard(c10::Stream stream) : guard(stream) {}
  c10::StreamGuard guard;
};

SideStream::Scope::Scope(SideStream& stream) {
  if (stream.state_->stream) guard_ = std::make_unique<Guard>(*stream.state_->stream);
}
SideStream::Scope::~Scope() = default;

struct StepGraph::State {
  std::unique_ptr<DeviceGraph> graph;
  bool captured = false;
};

StepGraph::StepGraph(Device device) : state_(std::make_unique<State>()) {
  PENTATRON_CHECK(!device.is_cpu(), kUnsupported, "a step on the CPU cannot be recorded");
  state_->graph = device_table().make_graph(device);
}
StepGraph::~StepGraph() = default;

void StepGraph::warm_up(const std::function<void()>& step) { state_->graph->warm_up(step); }

void StepGraph::capture(const std::function<void()>& step, const StepGraph* shares) {
  PENTATRON_CHECK(!state_->captured, kInternal, "a graph records one step");
  PENTATRON_CHECK(shares == nullptr || shares->captured(), kInternal,
                  "a graph shares the memory of one that has recorded nothing");
  state_->graph->capture(step, shares == nullptr ? nullptr : shares->state_->graph.get());
  state_->captured = true;
}

bool StepGraph::captured() const { return state_->captured; }

void StepGraph::replay() {
  PENTATRON_CHECK(state_->captured, kInternal, "a graph without a recorded step was replayed");
  state_->graph->replay();
}

}  // namespace pentatron::tensor
