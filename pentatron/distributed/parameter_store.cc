// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/parameter_store.h"

#include <numeric>
#include <utility>

#include "pentatron/comm/group_base.h"
#include "pentatron/distributed/gradient_path.h"
#include "pentatron/distributed/parameter_path.h"
#include "pentatron/distributed/store_plan.h"
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
            .gradients = nullptr});
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
  for (const PlannedPiece& planned :
       plan_pieces(layout_, options().sharding, inner_->env.shards.rank())) {
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
                       .state = {}});
    flat_begins_.push_back(s.flat_begin);
  }
  std::vector<std::size_t> all(pieces_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (policy_.main_parameter != policy_.parameter || options().state_on_host) {
    const std::vector<Tensor> mains = allocate_for(all, policy_.main_parameter);
    for (const std::size_t i : all) pieces_[i].main = mains[i];
  }
  if (options().state_on_host) {
    const std::vector<Tensor> grads = allocate_for(all, policy_.main_grad);
    for (const std::size_t i : all) pieces_[i].update_grad = grads[i];
  }
}

std::vector<Tensor> ParameterStore::allocate_for(std::span<const std::size_t> pieces, DType dtype) {
  std::vector<FlatRange> ranges;
  for (const std::size_t i : pieces) ranges.push_back({flat_begins_[i], pieces_[i].length()});
  const PackedRanges packed = pack(ranges);
  const Tensor flat = allocator_->allocate(packed.num_elements, dtype, state_device_);
  std::vector<Tensor> views;
  for (std::size_t n = 0; n < pieces.size(); ++n) {
    views.push_back(flat.narrow(0, packed.begins[n], ranges[n].length));
    state_bytes_ += ranges[n].length * tensor::item_bytes(dtype);
  }
  return views;
}

void ParameterStore::fetch_gradients() {
  if (!options().state_on_host) return;
  const tensor::NoGrad no_grad;
  for (Piece& piece : pieces_) piece.update_grad.copy_(piece.grad);
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
    for (Piece& piece : pieces_) {
      if (!piece.main.is_same(piece.parameter)) piece.parameter.copy_(piece.main);
    }
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
