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
  write_slot(slot, gradient);
}

void write_slot(const GradSlot& slot, const Tensor& gradient) {
  const Tensor& buffer = slot.buffer;
  // Vectors of a CPU, of which every layer has many, without the dispatcher.
  if (buffer.is_cpu() && gradient.is_cpu() && buffer.scalar_type() == DType::Float &&
      gradient.scalar_type() == DType::Float && buffer.dim() == 1 && buffer.is_contiguous() &&
      gradient.is_contiguous() && buffer.numel() == gradient.numel()) {
    float* to = buffer.data_ptr<float>();
    const float* from = gradient.const_data_ptr<float>();
    const std::int64_t n = buffer.numel();
    if (slot.accumulate) {
      for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
    } else {
      std::copy_n(from, n, to);
    }
  } else if (slot.accumulate) {
    buffer.add_(gradient);
  } else {
    buffer.copy_(gradient);
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
