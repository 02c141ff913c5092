// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/parameter_store.h"

#include <utility>

#include "pentatron/comm/group_base.h"
#include "pentatron/distributed/gradient_path.h"
#include "pentatron/distributed/parameter_path.h"
#include "pentatron/distributed/store_plan.h"
#include "pentatron/tensor/device_queue.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::distributed {
namespace {

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::int64_t group_size(comm::ParallelContext& context, const std::vector<std::string>& axes) {
  std::int64_t size = 1;
  for (const std::string& axis : axes) size *= context.size(axis);
  return size;
}

}  // namespace

struct ParameterStore::Inner {
  std::unique_ptr<comm::Group> alone;  // this rank: the group over no axes
  StoreEnv env;
  std::unique_ptr<ParameterPath> parameters;
  std::unique_ptr<GradientPath> gradients;
  std::unique_ptr<HostCopies> copies = nullptr;  // with overlap_host_copies
};

// Copies between the host's pieces and the device, in the order of the batches.
struct ParameterStore::HostCopies {
  explicit HostCopies(Device device, std::size_t num_batches) : stream(device) {
    for (std::size_t i = 0; i < num_batches; ++i) arrived.emplace_back(device);
  }
  tensor::SideStream stream;
  std::vector<tensor::Event> arrived;  // gradients, by batch
  std::vector<Tensor> outgoing;        // by piece: rounded parameters; undefined on the device
  bool sent = false;                   // since the last publish
};

ParameterStore::ParameterStore(const std::vector<nn::Unit>& units, comm::ParallelContext& context,
                               const StoreOptions& options, const PrecisionPolicy& policy,
                               Device device, std::unique_ptr<BufferAllocator> allocator)
    : allocator_(std::move(allocator)),
      policy_(policy),
      layout_(units, flat_layout_options(options, group_size(context, options.shard_over)), policy),
      state_device_(options.state_on_host ? Device(kCpu) : device) {
  const tensor::NoGrad no_grad;
  std::unique_ptr<comm::Group> alone = comm::make_local_group(
      "alone", {context.rank()}, context.rank(), context.grid().world_size());
  const auto group = [&](const std::vector<std::string>& axes) -> comm::Group& {
    return axes.empty() ? *alone : context.group(axes);
  };
  inner_ = std::make_unique<Inner>(
      Inner{.alone = nullptr,
            .env = {.layout = layout_,
                    .context = context,
                    .options = options,
                    .policy = policy,
                    .device = device,
                    .allocator = *allocator_,
                    .shards = group(options.shard_over),
                    .replicas = group(options.replicate_over),
                    .all = group(joined(options.shard_over, options.replicate_over))},
            .parameters = nullptr,
            .gradients = nullptr,
            .copies = nullptr});
  inner_->alone = std::move(alone);
  StoreEnv& env = inner_->env;
  inner_->parameters = options.sharding == Sharding::kParameters ? make_sharded_parameters(env)
                                                                 : make_whole_parameters(env);
  inner_->gradients = options.sharding >= Sharding::kGradients ? make_sharded_gradients(env)
                                                               : make_whole_gradients(env);
  for (const FlatSlot& slot : layout_.slots()) slot.parameter->set_host(this);
  make_pieces();
  reset_main();
}

ParameterStore::~ParameterStore() {
  for (const FlatSlot& slot : layout_.slots()) slot.parameter->set_host(nullptr);
}

const StoreOptions& ParameterStore::options() const { return inner_->env.options; }
Device ParameterStore::device() const { return inner_->env.device; }
comm::Group& ParameterStore::shard_group() const { return inner_->env.shards; }
comm::Group& ParameterStore::reduction_group() const { return inner_->env.all; }

bool ParameterStore::owns_pieces() const {
  return sharded() ? inner_->env.replicas.rank() == 0 : inner_->env.all.rank() == 0;
}

void ParameterStore::make_pieces() {
  const std::vector<PlannedPiece> plan =
      plan_pieces(layout_, options().sharding, inner_->env.shards.rank());
  const std::vector<bool> on_host = pieces_on_host(plan, options());
  host_batches_ = distributed::host_batches(plan, options());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlannedPiece& planned = plan[i];
    const FlatSegment& s = planned.segment;
    const Tensor parameter = inner_->parameters->own_range(planned.bucket, s.flat_begin, s.length);
    const Tensor grad = inner_->gradients->final_range(planned.bucket, s.flat_begin, s.length);
    pieces_.push_back({.weight = s.parameter,
                       .part = s.part,
                       .box_begin = s.box_begin,
                       .parameter = parameter,
                       .main = parameter,
                       .grad = grad,
                       .update_grad = grad,
                       .state = {},
                       .on_host = on_host[i]});
    flat_begins_.push_back(s.flat_begin);
  }
  std::vector<std::size_t> with_main, hosted;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].on_host) hosted.push_back(i);
    if (pieces_[i].on_host || policy_.main_parameter != policy_.parameter) with_main.push_back(i);
  }
  const std::vector<Tensor> mains = allocate_for(with_main, policy_.main_parameter);
  for (std::size_t n = 0; n < mains.size(); ++n) pieces_[with_main[n]].main = mains[n];
  const std::vector<Tensor> grads = allocate_for(hosted, policy_.main_grad);
  for (std::size_t n = 0; n < grads.size(); ++n) pieces_[hosted[n]].update_grad = grads[n];
  if (hosted.empty() || !options().overlap_host_copies) return;
  inner_->copies = std::make_unique<HostCopies>(device(), host_batches_.size());
  inner_->copies->outgoing.resize(pieces_.size());
  const std::vector<Tensor> outgoing = allocate_for(hosted, policy_.parameter);
  for (std::size_t n = 0; n < hosted.size(); ++n) {
    inner_->copies->outgoing[hosted[n]] = outgoing[n];
  }
}

std::vector<Tensor> ParameterStore::allocate_for(std::span<const std::size_t> pieces, DType dtype) {
  std::vector<Tensor> views(pieces.size());
  for (const bool on_host : {false, true}) {
    std::vector<FlatRange> ranges;
    std::vector<std::size_t> numbers;  // of the views
    for (std::size_t n = 0; n < pieces.size(); ++n) {
      const std::size_t i = pieces[n];
      if (pieces_[i].on_host != on_host) continue;
      ranges.push_back({flat_begins_[i], pieces_[i].length()});
      numbers.push_back(n);
    }
    if (ranges.empty()) continue;
    const PackedRanges packed = pack(ranges);
    const Tensor flat =
        on_host ? allocator_->allocate_on_host(packed.num_elements, dtype, device().is_cuda())
                : allocator_->allocate(packed.num_elements, dtype, device());
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      views[numbers[n]] = flat.narrow(0, packed.begins[n], ranges[n].length);
      state_bytes_ += ranges[n].length * tensor::item_bytes(dtype);
    }
  }
  return views;
}

void ParameterStore::fetch_gradients() {
  const tensor::NoGrad no_grad;
  HostCopies* copies = inner_->copies.get();
  if (copies == nullptr) {
    for (Piece& piece : pieces_) {
      if (piece.on_host) piece.update_grad.copy_(piece.grad);
    }
    return;
  }
  copies->stream.wait_for_current();
  const tensor::SideStream::Scope on_side(copies->stream);
  for (std::size_t b = 0; b < host_batches_.size(); ++b) {
    for (const std::size_t i : host_batches_[b]) {
      pieces_[i].update_grad.copy_(pieces_[i].grad, /*non_blocking=*/true);
    }
    copies->arrived[b].record();
  }
}

void ParameterStore::await_gradients(std::size_t host_batch) {
  if (inner_->copies != nullptr) inner_->copies->arrived[host_batch].synchronize();
}

void ParameterStore::send_parameters(std::size_t host_batch) {
  HostCopies* copies = inner_->copies.get();
  if (copies == nullptr) return;
  const tensor::NoGrad no_grad;
  // The device may have to finish reading the parameters first.
  if (!copies->sent) copies->stream.wait_for_current();
  copies->sent = true;
  const tensor::SideStream::Scope on_side(copies->stream);
  for (const std::size_t i : host_batches_[host_batch]) {
    // Rounded on the host into pinned memory of its own, so that the copy waits for nobody.
    copies->outgoing[i].copy_(pieces_[i].main);
    pieces_[i].parameter.copy_(copies->outgoing[i], /*non_blocking=*/true);
  }
}

void ParameterStore::copy_to_parameters() {
  HostCopies* copies = inner_->copies.get();
  const bool sent = copies != nullptr && copies->sent;
  if (sent) copies->stream.current_waits();
  if (copies != nullptr) copies->sent = false;
  for (Piece& piece : pieces_) {
    if (piece.main.is_same(piece.parameter) || (sent && piece.on_host)) continue;
    piece.parameter.copy_(piece.main);
  }
}

void ParameterStore::listen_to(WeightGradQueue& queue) {
  queue_ = &queue;
  listening_ = queue.on_unit_done([this](int unit) { weights_done(unit); });
}

void ParameterStore::set_timers(Timers* timers) { inner_->env.timers = timers; }

void ParameterStore::begin_step() { inner_->gradients->begin_step(); }

void ParameterStore::begin_last_micro_batch(int first_unit, int end_unit) {
  inner_->gradients->begin_last_micro_batch(first_unit, end_unit);
}

void ParameterStore::finish_step() {
  const tensor::NoGrad no_grad;
  const TimedScope timed(inner_->env.timers, "all-grads-sync", 1);
  inner_->gradients->finish_step();
}

void ParameterStore::on_forward_begin(int unit) {
  const tensor::NoGrad no_grad;
  inner_->parameters->on_forward_begin(unit);
}

void ParameterStore::on_forward_end(int unit) { inner_->parameters->on_forward_end(unit); }

void ParameterStore::on_backward_begin(int unit) {
  const tensor::NoGrad no_grad;
  inner_->parameters->on_backward_begin(unit);
}

void ParameterStore::on_backward_end(int unit) {
  inner_->parameters->on_backward_end(unit);
  if (queue_ == nullptr || queue_->pending_of(unit) == 0) weights_done(unit);
}

void ParameterStore::weights_done(int unit) {
  const tensor::NoGrad no_grad;
  inner_->gradients->unit_done(unit);
}

void ParameterStore::fill(const std::function<void(nn::Parameter&)>& fill) {
  const tensor::NoGrad no_grad;
  inner_->parameters->fill(fill);
  reset_main();
}

void ParameterStore::publish() {
  const tensor::NoGrad no_grad;
  {
    const TimedScope timed(inner_->env.timers, "optimizer-copy-main-to-model-params", 1);
    copy_to_parameters();
  }
  inner_->parameters->publish();
  tell_values_changed();
}

void ParameterStore::reset_main() {
  const tensor::NoGrad no_grad;
  for (Piece& piece : pieces_) {
    if (!piece.main.is_same(piece.parameter)) piece.main.copy_(piece.parameter);
  }
  tell_values_changed();
}

void ParameterStore::tell_values_changed() {
  for (const FlatSlot& slot : layout_.slots()) slot.parameter->values_changed();
}

void ParameterStore::settle() { inner_->parameters->settle(); }

void ParameterStore::provide_data(nn::Parameter& parameter) {
  const tensor::NoGrad no_grad;
  inner_->parameters->provide(parameter);
}

void ParameterStore::provide_grad(nn::Parameter& parameter) {
  const tensor::NoGrad no_grad;
  inner_->gradients->provide(parameter);
}

}  // namespace pentatron::distributed
