// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "pentatron/tensor/activation_index.h"
#include "pentatron/tensor/device_queue.h"

namespace pentatron::tensor {

// Activations wait in host memory: copied there when they are saved, on a stream of their own while
// forward goes on, and back ahead of their use. The owner says where units begin (begin_unit). A
// unit's activations leave the device while the next unit runs; when that one has run too, the
// device waits for the copies, so that what is freed depends on the order of work alone. The first
// activation that backward asks a unit for starts the copies of the unit before it. What backward
// wants before it has left is not copied back. Host memory is pinned for activations of a GPU, in
// blocks of powers of two that are used again: steps of the same sizes allocate nothing. On the CPU
// the copies are plain and save nothing; tests use it.
class OffloadActivations final : public SavePolicy {
 public:
  // Activations of fewer elements are kept: a copy costs more than their memory.
  explicit OffloadActivations(Device device, std::int64_t min_elements = std::int64_t{1} << 20);
  ~OffloadActivations() override;
  // A contiguous activation is the same one in every shape.
  [[nodiscard]] std::shared_ptr<SavedSlot> slot_for(const Tensor& activation,
                                                    const SaveSite& site) override;
  // For ops whose own activations stay: they share the slots of what the others sent or will send
  // to the host, so that nobody keeps a second copy on the device.
  [[nodiscard]] SavePolicy& bystanders() { return *bystanders_; }

  // From here on what is saved belongs to this unit; what the ones before the last one saved leaves
  // the device.
  void begin_unit(int unit, int micro_batch);
  // No unit follows for now: as if another began.
  void end_units();
  // Starts to bring back what a unit saved; the copies overlap with backward.
  void fetch_ahead(int unit, int micro_batch);

  // In host memory now, of slots that somebody still holds.
  [[nodiscard]] std::int64_t host_bytes() const;
  // Host memory that this has, in use or not, and how often it took some.
  [[nodiscard]] std::int64_t host_capacity() const;
  [[nodiscard]] std::int64_t num_host_allocations() const;

 private:
  class Bystanders;
  class Slot;
  struct Copies;
  struct Unit;

  // The slot of an activation, of the unit that runs; `send`: to the host.
  [[nodiscard]] std::shared_ptr<SavedSlot> slot_of(const Tensor& activation, const SaveSite& site,
                                                   bool send);
  [[nodiscard]] std::shared_ptr<Unit> unit_of(int unit, int micro_batch);
  // All but the newest units.
  void let_go();

  std::int64_t min_elements_;
  std::unique_ptr<SavePolicy> bystanders_;
  std::shared_ptr<Copies> copies_;  // also held by the slots
  ActivationIndex slots_;
  std::map<std::pair<int, int>, std::weak_ptr<Unit>> units_;  // by unit and micro-batch
  std::map<int, std::weak_ptr<Unit>> newest_;                 // by micro-batch
  std::shared_ptr<Unit> running_;
  std::deque<std::shared_ptr<Unit>> leaving_;  // the running one is the last
};

}  // namespace pentatron::tensor
