// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "pentatron/tensor/saved.h"

namespace pentatron::tensor {

// Which activation a tensor shows: its memory, by identity, and how it lies there. The memory may
// be freed while the key lives; its identity is not given to another one until the key is gone.
class ActivationKey final {
 public:
  explicit ActivationKey(const Tensor& activation);
  [[nodiscard]] bool shows(const Tensor& activation) const;
  // The number under which activations of the same memory are filed.
  [[nodiscard]] static const void* memory_of(const Tensor& activation);
  [[nodiscard]] const void* memory() const { return memory_; }
  // Whether any tensor still holds the memory.
  [[nodiscard]] bool alive() const { return !storage_.expired(); }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  const void* memory_;
  std::int64_t offset_;
  Shape shape_;
  Shape strides_;
  DType dtype_;
};

// The slots that are in use, by activation.
class ActivationIndex final {
 public:
  // Null: none.
  [[nodiscard]] std::shared_ptr<SavedSlot> find(const Tensor& activation) const;
  void add(const Tensor& activation, const std::shared_ptr<SavedSlot>& slot);
  // Slots that somebody still holds.
  [[nodiscard]] std::size_t num_live() const;

 private:
  struct Entry {
    ActivationKey key;
    std::weak_ptr<SavedSlot> slot;
  };
  std::unordered_multimap<const void*, Entry> entries_;
  std::size_t clean_at_ = 64;  // entries at which those of dropped slots are thrown out
};

}  // namespace pentatron::tensor
