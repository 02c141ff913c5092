// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/weight_grad_queue.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron {

void WeightGradQueue::put(const WeightGradKey& key, Work work) {
  PENTATRON_CHECK(work != nullptr, kInternal, "empty weight-gradient work for unit {}", key.unit);
  if (postpone_) {
    queue_.push_back({key, std::move(work)});
    return;
  }
  work();
}

template <typename Matches>
void WeightGradQueue::drain_where(const Matches& matches) {
  const tensor::NoGrad no_grad;
  while (true) {
    const auto next = std::find_if(queue_.begin(), queue_.end(),
                                   [&](const Entry& entry) { return matches(entry.key); });
    if (next == queue_.end()) return;
    Entry entry = std::move(*next);
    queue_.erase(next);
    entry.work();
    // The closure holds activations: free them before listeners are called.
    entry.work = nullptr;
    if (entry.key.micro_batch == last_) ran_last_.insert(entry.key.unit);
    if (done(entry.key.unit)) tell_done(entry.key.unit);
  }
}

void WeightGradQueue::drain() {
  drain_where([](const WeightGradKey&) { return true; });
}

void WeightGradQueue::drain(const WeightGradKey& key) {
  drain_where([&](const WeightGradKey& candidate) { return candidate == key; });
}

void WeightGradQueue::drain_micro_batch(int micro_batch, int chunk) {
  drain_where([&](const WeightGradKey& key) {
    return key.micro_batch == micro_batch && key.chunk == chunk;
  });
}

void WeightGradQueue::set_last_micro_batch(int last) {
  last_ = last;
  ran_last_.clear();
}

bool WeightGradQueue::done(int unit) const {
  return pending_of(unit) == 0 && (last_ < 0 || ran_last_.contains(unit));
}

std::shared_ptr<const WeightGradQueue::Listener> WeightGradQueue::on_unit_done(Listener listener) {
  PENTATRON_CHECK(listener != nullptr, kInternal, "an empty listener of the weight-gradient queue");
  std::erase_if(listeners_, [](const auto& weak) { return weak.expired(); });
  auto handle = std::make_shared<const Listener>(std::move(listener));
  listeners_.push_back(handle);
  return handle;
}

void WeightGradQueue::tell_done(int unit) const {
  // A copy: a listener may subscribe others or let go of its handle.
  const auto listeners = listeners_;
  for (const auto& weak : listeners) {
    if (const auto listener = weak.lock()) (*listener)(unit);
  }
}

std::size_t WeightGradQueue::pending_of(int unit) const {
  return static_cast<std::size_t>(std::count_if(
      queue_.begin(), queue_.end(), [unit](const Entry& entry) { return entry.key.unit == unit; }));
}

}  // namespace pentatron
