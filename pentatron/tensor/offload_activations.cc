// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/offload_activations.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "pentatron/tensor/ops.h"

namespace pentatron::tensor {

// The queue of copies, and what they hold.
struct OffloadActivations::Copies {
  explicit Copies(Device device) : stream(device) {}

  // A copy of contiguous memory, queued after what the current stream holds.
  void start(Tensor to, const Tensor& from) {
    stream.wait_for_current();
    const SideStream::Scope on_side(stream);
    to.copy_(from, /*non_blocking=*/true);
  }

  SideStream stream;
  std::int64_t host_bytes = 0;
};

class OffloadActivations::Slot final : public SavedSlot {
 public:
  Slot(const Tensor& activation, std::shared_ptr<Copies> copies)
      : copies_(std::move(copies)), device_(activation.device()) {
    const Tensor from = activation.variable_data().contiguous();
    host_ = at::empty(from.sizes(),
                      at::TensorOptions().dtype(from.scalar_type()).pinned_memory(from.is_cuda()));
    copies_->start(host_, from);
    // The activation's memory may be given away at once by its owner: not before it was read.
    copies_->stream.keep(from);
    copies_->host_bytes += bytes();
  }
  ~Slot() override { copies_->host_bytes -= bytes(); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  void fetch() {
    if (values_.defined()) return;
    values_ = empty(host_.sizes(), host_.scalar_type(), device_);
    copies_->start(values_, host_);
    copies_->stream.keep(values_);
  }
  Tensor get() override {
    fetch();
    if (!arrived_) copies_->stream.current_waits();
    arrived_ = true;
    return values_;
  }

 private:
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(host_.nbytes()); }

  std::shared_ptr<Copies> copies_;
  Device device_;
  Tensor host_;
  Tensor values_;
  bool arrived_ = false;
};

OffloadActivations::OffloadActivations(Device device, std::int64_t min_bytes)
    : min_bytes_(min_bytes), copies_(std::make_shared<Copies>(device)) {}

OffloadActivations::~OffloadActivations() = default;

std::shared_ptr<SavedSlot> OffloadActivations::slot_for(const Tensor& activation,
                                                        const SaveSite& site) {
  if (static_cast<std::int64_t>(activation.nbytes()) < min_bytes_) return nullptr;
  if (auto slot = slots_.find(activation)) return slot;
  const NoGrad no_grad;
  auto slot = std::make_shared<Slot>(activation, copies_);
  slots_.add(activation, slot);
  std::vector<std::weak_ptr<Slot>>& of_unit = of_unit_[{site.unit, site.micro_batch}];
  std::erase_if(of_unit, [](const auto& weak) { return weak.expired(); });
  of_unit.push_back(slot);
  return slot;
}

void OffloadActivations::fetch_ahead(int unit, int micro_batch) {
  const auto found = of_unit_.find({unit, micro_batch});
  if (found == of_unit_.end()) return;
  const NoGrad no_grad;
  for (const auto& weak : found->second) {
    if (const auto slot = weak.lock()) slot->fetch();
  }
}

std::int64_t OffloadActivations::host_bytes() const { return copies_->host_bytes; }

}  // namespace pentatron::tensor
