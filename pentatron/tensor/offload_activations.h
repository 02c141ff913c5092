// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "pentatron/tensor/activation_index.h"
#include "pentatron/tensor/device_queue.h"

namespace pentatron::tensor {

// Activations wait in host memory: copied there when they are saved, while forward goes on,
// and back when backward asks, or a unit ahead of it with fetch_ahead(). Host memory is pinned for
// activations of a GPU. On the CPU the copies are plain and save nothing; tests use it.
class OffloadActivations final : public SavePolicy {
 public:
  // Activations under `min_bytes` are kept: a copy costs more than their memory.
  explicit OffloadActivations(Device device, std::int64_t min_bytes = std::int64_t{1} << 20);
  ~OffloadActivations() override;
  [[nodiscard]] std::shared_ptr<SavedSlot> slot_for(const Tensor& activation,
                                                    const SaveSite& site) override;
  // Starts to bring back what a unit saved; the copy overlaps with backward. Called when
  // that micro-batch's backward of the unit after it begins.
  void fetch_ahead(int unit, int micro_batch);
  // In host memory now, of slots that somebody still holds.
  [[nodiscard]] std::int64_t host_bytes() const;

 private:
  class Slot;
  struct Copies;

  std::int64_t min_bytes_;
  std::shared_ptr<Copies> copies_;  // also held by the slots
  ActivationIndex slots_;
  std::map<std::pair<int, int>, std::vector<std::weak_ptr<Slot>>> of_unit_;  // and micro-batch
};

}  // namespace pentatron::tensor
