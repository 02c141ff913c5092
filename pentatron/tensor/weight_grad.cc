// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/weight_grad_queue.h"
#include "pentatron/tensor/weight_ref.h"

namespace pentatron {

void write_grad(WeightRef& weight, const Tensor& gradient) {
  if (!weight.trainable()) return;
  const tensor::NoGrad no_grad;
  const GradSlot slot = weight.grad_slot();
  PENTATRON_CHECK(
      slot.buffer.defined() && gradient.defined() && slot.buffer.sizes() == gradient.sizes(),
      kInternal, "a gradient {} was written into a slot {}", tensor::describe(gradient),
      tensor::describe(slot.buffer));
  if (slot.accumulate) {
    slot.buffer.add_(gradient);
  } else {
    slot.buffer.copy_(gradient);
  }
}

void WeightGradQueue::put(int layer, Work work) {
  PENTATRON_CHECK(work != nullptr, kInternal, "empty weight-gradient work for layer {}", layer);
  if (postpone_) {
    queue_.push_back({layer, std::move(work)});
    return;
  }
  work();
}

void WeightGradQueue::drain(std::size_t count) {
  const tensor::NoGrad no_grad;
  for (; count > 0 && !queue_.empty(); --count) {
    Entry entry = std::move(queue_.front());
    queue_.pop_front();
    entry.work();
    // The closure holds activations: they go before anybody is told.
    entry.work = nullptr;
    if (pending_of(entry.layer) == 0) tell_layer_done(entry.layer);
  }
}

std::shared_ptr<const WeightGradQueue::Listener> WeightGradQueue::on_layer_done(Listener listener) {
  PENTATRON_CHECK(listener != nullptr, kInternal, "an empty listener of the weight-gradient queue");
  std::erase_if(listeners_, [](const auto& weak) { return weak.expired(); });
  auto handle = std::make_shared<const Listener>(std::move(listener));
  listeners_.push_back(handle);
  return handle;
}

void WeightGradQueue::tell_layer_done(int layer) const {
  // A copy: a listener may subscribe others or let go of its handle.
  const auto listeners = listeners_;
  for (const auto& weak : listeners) {
    if (const auto listener = weak.lock()) (*listener)(layer);
  }
}

std::size_t WeightGradQueue::pending_of(int layer) const {
  return static_cast<std::size_t>(std::count_if(
      queue_.begin(), queue_.end(), [layer](const Entry& entry) { return entry.layer == layer; }));
}

}  // namespace pentatron
