// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/offload_activations.h"

#include <ATen/ops/empty.h>

#include <bit>
#include <utility>
#include <vector>

#include "pentatron/tensor/ops.h"

namespace pentatron::tensor {

// The queue of copies, and the host memory that they use.
struct OffloadActivations::Copies {
  explicit Copies(Device where) : device(where), stream(where) {}

  // A copy of contiguous memory, queued after what the current stream holds.
  void start(Tensor to, const Tensor& from) {
    stream.wait_for_current();
    const SideStream::Scope on_side(stream);
    to.copy_(from, /*non_blocking=*/true);
  }

  // A block may be given again while the queue still reads it: all copies are in one queue, so the
  // next one that writes it comes behind.
  Tensor take(std::int64_t bytes) {
    const std::int64_t size = block_size(bytes);
    in_use += bytes;
    std::vector<Tensor>& blocks = free[size];
    if (!blocks.empty()) {
      Tensor block = std::move(blocks.back());
      blocks.pop_back();
      return block;
    }
    capacity += size;
    ++num_allocations;
    return at::empty({size}, at::TensorOptions().dtype(at::kByte).pinned_memory(!device.is_cpu()));
  }
  void give_back(Tensor block, std::int64_t bytes) {
    in_use -= bytes;
    free[block.numel()].push_back(std::move(block));
  }
  // The current stream waits for all copies so far.
  void join() {
    stream.current_waits();
    parked.clear();
  }

  static std::int64_t block_size(std::int64_t bytes) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
  }

  Device device;
  SideStream stream;
  std::map<std::int64_t, std::vector<Tensor>> free;  // by size
  std::vector<Tensor> parked;  // that the queue may still write and nobody wants
  std::int64_t in_use = 0;
  std::int64_t capacity = 0;
  std::int64_t num_allocations = 0;
};

// What a unit of a micro-batch has saved.
struct OffloadActivations::Unit {
  explicit Unit(Device device) : left(device) {}

  // The current stream waits for the copies to the host; the device's memory may go.
  void let_go();
  void fetch();
  // Backward has come here.
  void enter(Copies& copies);

  std::vector<std::weak_ptr<Slot>> slots;
  std::vector<Tensor> on_the_way;  // that the queue reads
  Event left;                      // behind the last of these copies
  std::weak_ptr<Unit> before;
  bool entered = false;
};

class OffloadActivations::Slot final : public SavedSlot {
 public:
  Slot(Tensor values, std::shared_ptr<Unit> unit, std::shared_ptr<Copies> copies)
      : unit_(std::move(unit)), copies_(std::move(copies)), values_(std::move(values)) {}
  ~Slot() override {
    if (!sent()) return;
    if (fetching_) copies_->parked.push_back(std::move(values_));
    copies_->give_back(std::move(host_), bytes_);
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  [[nodiscard]] bool sent() const { return host_.defined(); }
  void send() {
    const Tensor from = values_.contiguous();
    values_ = from;  // what a view showed may be large
    bytes_ = static_cast<std::int64_t>(from.nbytes());
    shape_ = shape_of(from);
    dtype_ = from.scalar_type();
    host_ = copies_->take(bytes_);
    copies_->start(on_host(), from);
    // Its memory may be given away at once by its owner: not before it was read.
    unit_->on_the_way.push_back(from);
    const SideStream::Scope on_side(copies_->stream);
    unit_->left.record();
  }
  // Its memory on the device goes.
  void leave() {
    if (sent() && !fetching_) values_ = Tensor();
  }
  void fetch() {
    if (values_.defined()) return;
    values_ = empty(shape_, dtype_, copies_->device);
    copies_->start(values_, on_host());
    fetching_ = true;
  }
  // Whether it was being fetched; the caller waits.
  [[nodiscard]] bool arrives() { return std::exchange(fetching_, false); }

  Tensor get() override {
    const NoGrad no_grad;
    unit_->enter(*copies_);
    fetch();  // where it left after backward had come
    if (arrives()) copies_->join();
    return values_;
  }

 private:
  [[nodiscard]] Tensor on_host() const {
    return host_.narrow(0, 0, bytes_).view(dtype_).view(shape_);
  }

  std::shared_ptr<Unit> unit_;
  std::shared_ptr<Copies> copies_;
  Tensor values_;  // undefined: they are in host memory alone
  Tensor host_;    // a block; undefined: never sent
  std::int64_t bytes_ = 0;
  Shape shape_;
  DType dtype_ = DType::Undefined;
  bool fetching_ = false;  // copied back, not yet waited for
};

void OffloadActivations::Unit::let_go() {
  if (on_the_way.empty()) return;
  left.wait_on_stream();
  on_the_way.clear();
  if (entered) return;  // backward has its hands on them
  for (const auto& weak : slots) {
    if (const auto slot = weak.lock()) slot->leave();
  }
}

void OffloadActivations::Unit::fetch() {
  for (const auto& weak : slots) {
    if (const auto slot = weak.lock()) slot->fetch();
  }
}

void OffloadActivations::Unit::enter(Copies& copies) {
  if (std::exchange(entered, true)) return;
  fetch();
  bool waits = false;
  for (const auto& weak : slots) {
    if (const auto slot = weak.lock()) waits = slot->arrives() || waits;
  }
  if (waits) copies.join();
  let_go();
  if (const auto earlier = before.lock()) earlier->fetch();
}

namespace {

// One activation of several shapes.
class Reshaped final : public SavedSlot {
 public:
  Reshaped(std::shared_ptr<SavedSlot> flat, Shape shape)
      : flat_(std::move(flat)), shape_(std::move(shape)) {}
  Tensor get() override { return flat_->get().view(shape_); }

 private:
  std::shared_ptr<SavedSlot> flat_;
  Shape shape_;
};

}  // namespace

class OffloadActivations::Bystanders final : public SavePolicy {
 public:
  explicit Bystanders(OffloadActivations& of) : of_(of) {}
  std::shared_ptr<SavedSlot> slot_for(const Tensor& activation, const SaveSite& site) override {
    return of_.slot_of(activation, site, /*send=*/false);
  }

 private:
  OffloadActivations& of_;
};

OffloadActivations::OffloadActivations(Device device, std::int64_t min_elements)
    : min_elements_(min_elements),
      bystanders_(std::make_unique<Bystanders>(*this)),
      copies_(std::make_shared<Copies>(device)) {}

OffloadActivations::~OffloadActivations() = default;

std::shared_ptr<SavedSlot> OffloadActivations::slot_for(const Tensor& activation,
                                                        const SaveSite& site) {
  return slot_of(activation, site, /*send=*/true);
}

std::shared_ptr<SavedSlot> OffloadActivations::slot_of(const Tensor& activation,
                                                       const SaveSite& site, bool send) {
  if (activation.numel() < min_elements_ || activation.numel() == 0) return nullptr;
  const NoGrad no_grad;
  const bool one_piece = activation.is_contiguous();
  const Tensor values = activation.variable_data();
  const Tensor flat = one_piece ? values.view({-1}) : values;
  auto slot = std::static_pointer_cast<Slot>(slots_.find(flat));
  if (slot == nullptr) {
    const std::shared_ptr<Unit> unit = unit_of(site.unit, site.micro_batch);
    slot = std::make_shared<Slot>(flat, unit, copies_);
    slots_.add(flat, slot);
    unit->slots.push_back(slot);
  }
  if (send && !slot->sent()) slot->send();
  if (!one_piece || activation.dim() == 1) return slot;
  return std::make_shared<Reshaped>(std::move(slot), shape_of(activation));
}

std::shared_ptr<OffloadActivations::Unit> OffloadActivations::unit_of(int unit, int micro_batch) {
  std::weak_ptr<Unit>& known = units_[{unit, micro_batch}];
  if (auto found = known.lock()) return found;
  auto made = std::make_shared<Unit>(copies_->device);
  made->before = newest_[micro_batch];
  newest_[micro_batch] = made;
  known = made;
  leaving_.push_back(made);
  return made;
}

void OffloadActivations::let_go() {
  while (leaving_.size() > 1) {
    leaving_.front()->let_go();
    leaving_.pop_front();
  }
}

void OffloadActivations::begin_unit(int unit, int micro_batch) {
  let_go();
  // A step that was left without its backward must not be found again.
  units_[{unit, micro_batch}].reset();
  running_ = unit_of(unit, micro_batch);
}

void OffloadActivations::end_units() { let_go(); }

void OffloadActivations::fetch_ahead(int unit, int micro_batch) {
  const auto found = units_.find({unit, micro_batch});
  if (found == units_.end()) return;
  const NoGrad no_grad;
  if (const auto saved = found->second.lock()) saved->fetch();
}

std::int64_t OffloadActivations::host_bytes() const { return copies_->in_use; }
std::int64_t OffloadActivations::host_capacity() const { return copies_->capacity; }
std::int64_t OffloadActivations::num_host_allocations() const { return copies_->num_allocations; }

}  // namespace pentatron::tensor
