// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "pentatron/tensor/tensor.h"

namespace pentatron {

// What stands for one activation between forward and backward. All Saved handles of that activation
// share it, so it is offloaded, compressed or rebuilt once however many ops want it.
class SavedSlot {
 public:
  virtual ~SavedSlot() = default;
  // The values that were saved, without graph, in their shape and dtype (strides may differ).
  [[nodiscard]] virtual Tensor get() = 0;
};

// Who saves.
struct SaveSite {
  std::string_view op;  // name of the op, a literal
  int unit = 0;         // of the model, as events count them
  int micro_batch = 0;
};

// Decides what becomes of the activations of a part of a model. Without a policy they are kept. One
// object serves many micro-batches of one rank thread; it outlives every graph recorded under it.
class SavePolicy {
 public:
  virtual ~SavePolicy() = default;
  // The slot of an activation that `site` saves; null: it is kept as it is. From now on its memory
  // is not written to.
  [[nodiscard]] virtual std::shared_ptr<SavedSlot> slot_for(const Tensor& activation,
                                                            const SaveSite& site) = 0;

  // Gives the same values again, without grad mode.
  using Rebuild = std::function<Tensor()>;
  // Whether this policy wants to be told how the outputs of `site` can be made again.
  [[nodiscard]] virtual bool wants_rebuild(const SaveSite& site) const;
  // Told by an op that was just run, before anybody saves `output`; only where it is wanted.
  virtual void can_rebuild(const Tensor& output, Rebuild rebuild);
};

// An activation kept for backward, detached from the graph. Copies share it.
class Saved final {
 public:
  Saved() = default;
  explicit Saved(const Tensor& activation);
  // As `policy` decides; null: kept. An undefined activation gives an undefined Saved.
  Saved(const Tensor& activation, SavePolicy* policy, const SaveSite& site);
  // The values, without graph. Calling after release() is an internal error.
  [[nodiscard]] Tensor get() const;
  [[nodiscard]] bool defined() const { return tensor_.defined() || slot_ != nullptr; }
  void release() {
    tensor_ = Tensor();
    slot_.reset();
  }

 private:
  Tensor tensor_;  // one of the two
  std::shared_ptr<SavedSlot> slot_;
};

}  // namespace pentatron
