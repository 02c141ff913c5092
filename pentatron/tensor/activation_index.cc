// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/activation_index.h"

#include <algorithm>

namespace pentatron::tensor {

ActivationKey::ActivationKey(const Tensor& activation)
    : storage_(activation.storage().getWeakStorageImpl()),
      memory_(memory_of(activation)),
      offset_(activation.storage_offset()),
      shape_(shape_of(activation)),
      strides_(activation.strides().vec()),
      dtype_(activation.scalar_type()) {}

const void* ActivationKey::memory_of(const Tensor& activation) {
  return activation.storage().unsafeGetStorageImpl();
}

bool ActivationKey::shows(const Tensor& activation) const {
  return memory_of(activation) == memory_ && activation.storage_offset() == offset_ &&
         activation.sizes() == IntList(shape_) && activation.strides() == IntList(strides_) &&
         activation.scalar_type() == dtype_;
}

std::shared_ptr<SavedSlot> ActivationIndex::find(const Tensor& activation) const {
  const auto [begin, end] = entries_.equal_range(ActivationKey::memory_of(activation));
  for (auto at = begin; at != end; ++at) {
    if (!at->second.key.shows(activation)) continue;
    if (auto slot = at->second.slot.lock()) return slot;
  }
  return nullptr;
}

void ActivationIndex::add(const Tensor& activation, const std::shared_ptr<SavedSlot>& slot) {
  if (entries_.size() >= clean_at_) {
    std::erase_if(entries_, [](const auto& entry) { return entry.second.slot.expired(); });
    clean_at_ = std::max<std::size_t>(64, 2 * entries_.size());
  }
  entries_.emplace(ActivationKey::memory_of(activation),
                   Entry{.key = ActivationKey(activation), .slot = slot});
}

std::size_t ActivationIndex::num_live() const {
  return static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(),
                    [](const auto& entry) { return !entry.second.slot.expired(); }));
}

}  // namespace pentatron::tensor
