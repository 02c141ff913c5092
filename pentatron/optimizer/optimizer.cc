// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/config/choices.h"
#include "pentatron/optimizer/rules/adamw.h"
#include "pentatron/optimizer/rules/lion.h"
#include "pentatron/optimizer/rules/muon.h"
#include "pentatron/optimizer/rules/scaled_adamw.h"
#include "pentatron/optimizer/rules/sgd.h"
#include "pentatron/optimizer/rules/soap.h"
#include "pentatron/optimizer/state_plan.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {

using config::OptimizerKind;

namespace {

using distributed::Piece;

// Added to the norm before the division, as in the usual clipping by norm.
constexpr double kClipEpsilon = 1e-6;

// Axes that cut or copy the model: those of the grid over which gradients are not summed. Ranks
// that differ only on the others hold the same when nothing is sharded.
std::vector<std::string> model_axes(const comm::RankGrid& grid,
                                    const distributed::StoreOptions& options) {
  const auto reduced = [&](const auto& axis) {
    const auto names = [&](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), axis.name) != list.end();
    };
    return names(options.shard_over) || names(options.replicate_over);
  };
  std::vector<std::string> names;
  for (const comm::Axis& axis : grid.axes()) {
    if (reduced(axis)) continue;
    if (std::none_of(axis.factors.begin(), axis.factors.end(), reduced)) {
      if (axis.size > 1) names.push_back(axis.name);
      continue;
    }
    for (const comm::AxisFactor& factor : axis.factors) {
      if (!reduced(factor) && factor.size > 1) names.push_back(factor.name);
    }
  }
  return names;
}

// Pieces that follow one rule.
struct RuleGroup {
  std::unique_ptr<UpdateRule> rule;
  std::vector<Piece*> pieces;
  std::vector<Piece*> on_device;
  std::vector<std::vector<Piece*>> on_host;  // by the store's batches
};

// Undefined stays undefined.
Tensor moved(const Tensor& t, Device device) { return t.defined() ? t.to(device) : t; }

}  // namespace

struct Optimizer::State {
  distributed::ParameterStore& store;
  comm::ParallelContext& context;
  config::OptimizerConfig config;
  Device device;                      // of parameters and gradients
  comm::Group* norm_group = nullptr;  // sums squares; null: this rank has all
  Timers* timers = nullptr;
  std::vector<RuleGroup> groups{};
  Tensor num_updates{};  // fp64 scalar on the device: a skipped step does not count
  Tensor max_norm{};     // --clip-grad

  // Adam alone has a rule for what is kept in 16 bits.
  void check_widths(const PrecisionPolicy& policy) const {
    const bool narrow = tensor::item_bytes(policy.main_parameter) < 4 ||
                        tensor::item_bytes(policy.state) < 4 ||
                        config.use_precision_aware_optimizer;
    PENTATRON_CHECK(!narrow || config::optimizer_kind(config) == OptimizerKind::kAdam, kUnsupported,
                    "main parameters in {} and moments in {} belong to --optimizer adam, not {}",
                    tensor::dtype_name(policy.main_parameter), tensor::dtype_name(policy.state),
                    config.optimizer);
  }

  // Ranks that hold some of the same parts: all of a pipeline stage, and of the same experts.
  [[nodiscard]] ScaleSharing scale_sharing() {
    ScaleSharing sharing{.device = device};
    for (const distributed::FlatSlot& slot : store.layout().slots()) {
      for (const nn::ShardPart& part : slot.parameter->spec().parts) {
        sharing.parts.push_back(part.name);
      }
    }
    std::vector<std::string> axes;
    for (const comm::Axis& axis : context.grid().axes()) {
      const bool other_parts = axis.name == "pp" || axis.name == "ep";
      if (axis.size > 1 && !other_parts) axes.push_back(axis.name);
    }
    if (!axes.empty()) sharing.group = &context.group(axes);
    return sharing;
  }

  void make_groups(const PrecisionPolicy& policy, const WidthScaling& scaling, std::uint64_t seed) {
    check_widths(policy);
    std::unique_ptr<UpdateRule> usual;
    std::unique_ptr<UpdateRule> of_matrices;
    switch (config::optimizer_kind(config)) {
      case OptimizerKind::kSgd:
        usual = make_sgd(config, scaling);
        break;
      case OptimizerKind::kLion:
        usual = make_lion();
        break;
      case OptimizerKind::kMuon:
        of_matrices = make_muon(config, context);
        break;
      case OptimizerKind::kSoap:
        of_matrices = make_soap(config, context);
        break;
      case OptimizerKind::kAdam:
        break;
    }
    // What is no matrix has Adam's rule beside Muon and SOAP.
    if (usual == nullptr) {
      usual = has_scaled_moments(config) ? make_scaled_adamw(config, scaling, seed, scale_sharing())
                                         : make_adamw(config, scaling, seed);
    }
    const bool split = of_matrices != nullptr;
    if (split) {
      PENTATRON_CHECK(
          !store.sharded() || store.options().cut == distributed::ShardCut::kMatrices, kInternal,
          "--optimizer {} updates whole matrices, the store is cut by elements", config.optimizer);
      add_group(std::move(of_matrices), policy,
                [](const Piece& piece) { return nn::is_matrix(piece.weight->spec()); });
    }
    add_group(std::move(usual), policy, [split](const Piece& piece) {
      return !split || !nn::is_matrix(piece.weight->spec());
    });
  }

  template <typename Follows>
  void add_group(std::unique_ptr<UpdateRule> rule, const PrecisionPolicy& policy,
                 const Follows& follows) {
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < store.pieces().size(); ++i) {
      if (follows(store.pieces()[i])) members.push_back(i);
    }
    for (const std::string_view state : rule->states()) {
      const std::vector<Tensor> views =
          store.allocate_for(members, state_dtype(config, policy, state));
      for (std::size_t n = 0; n < members.size(); ++n) {
        store.pieces()[members[n]].state.push_back(views[n]);
      }
    }
    RuleGroup& group = groups.emplace_back();
    group.rule = std::move(rule);
    for (const std::size_t i : members) group.pieces.push_back(&store.pieces()[i]);
    group.on_host.resize(store.host_batches().size());
    for (Piece* piece : group.pieces) {
      if (!piece->on_host) group.on_device.push_back(piece);
    }
    for (std::size_t b = 0; b < store.host_batches().size(); ++b) {
      for (const std::size_t i : store.host_batches()[b]) {
        if (follows(store.pieces()[i])) group.on_host[b].push_back(&store.pieces()[i]);
      }
    }
    group.rule->prepare(group.pieces);
  }

  void find_norm_group() {
    // Sharded: every rank has another share. Otherwise only the model is cut.
    const std::vector<std::string> axes = model_axes(context.grid(), store.options());
    if (store.sharded()) {
      norm_group = &context.world();
    } else if (!axes.empty()) {
      norm_group = &context.group(axes);
    }
  }

  [[nodiscard]] Tensor device_scalar(double value) const {
    return tensor::scalar(value, kAccumulationDType, device);
  }

  // Calls visit(part, values) with a 1-D view of every part of a frozen parameter. All ranks of the
  // reduction group hold them whole.
  template <typename Visit>
  void for_each_frozen_part(const Visit& visit) {
    for (nn::Parameter* parameter : store.layout().frozen()) {
      for (const nn::ShardPart& part : parameter->spec().parts) {
        if (part.box.empty()) continue;
        visit(part, nn::part_view(parameter->data(), part).view({-1}));
      }
    }
  }

  // `add(values, sum)` over the pieces that count, in fp64, in the order of the store, and then the
  // sum over the group in the backend's fixed order.
  template <typename Add>
  Tensor global_sum(Tensor Piece::*values, bool frozen_too, const Add& add) {
    Tensor sum = device_scalar(0);
    // Main parameters may lie on the host.
    Tensor on_host =
        device.is_cpu() ? sum : tensor::scalar(0, kAccumulationDType, store.state_device());
    // What stands in equal shards on several ranks counts once; where nothing is sharded the group
    // holds each once.
    const bool counts = !store.sharded() || store.owns_pieces();
    for (const Piece& piece : store.pieces()) {
      if (piece.part->replica != 0 || !counts) continue;
      const Tensor& t = piece.*values;
      add(t, t.device() == sum.device() ? sum : on_host);
    }
    if (!on_host.is_same(sum)) sum.add_(on_host.to(device));
    if (frozen_too && (!store.sharded() || store.reduction_group().rank() == 0)) {
      for_each_frozen_part([&](const nn::ShardPart& part, const Tensor& values_n) {
        if (part.replica == 0) add(values_n, sum);
      });
    }
    if (norm_group != nullptr) comm::all_reduce(*norm_group, sum);
    return sum;
  }
  Tensor global_squares(Tensor Piece::*values, bool frozen_too) {
    return global_sum(values, frozen_too, ops::add_squares);
  }

  [[nodiscard]] Tensor clip_factor(const Tensor& norm) const {
    if (config.clip_grad <= 0) return device_scalar(1);
    return max_norm.div(norm.add(kClipEpsilon)).clamp_max_(1.0);
  }

  // What the device holds is queued before the host begins; what the host waits for, before that.
  void update(const ops::AdamScalars& scalars) {
    const TimedScope timed(timers, "optimizer-inner-step", 1);
    store.fetch_gradients();
    ops::AdamScalars of_host = scalars;
    if (!store.host_batches().empty()) {
      for (Tensor* scalar : {&of_host.lr, &of_host.step, &of_host.grad_scale, &of_host.weight_decay,
                             &of_host.skip, &of_host.decoupled_lr, &of_host.width_lr}) {
        *scalar = moved(*scalar, store.state_device());
      }
    }
    for (RuleGroup& group : groups) group.rule->update(group.on_device, scalars);
    for (std::size_t b = 0; b < store.host_batches().size(); ++b) {
      store.await_gradients(b);
      for (RuleGroup& group : groups) {
        if (!group.on_host[b].empty()) group.rule->update(group.on_host[b], of_host);
      }
      store.send_parameters(b);
    }
  }
};

Optimizer::Optimizer(distributed::ParameterStore& store, comm::ParallelContext& context,
                     const config::OptimizerConfig& config, const PrecisionPolicy& policy,
                     const WidthScaling& scaling, std::uint64_t seed)
    : state_(new State{
          .store = store, .context = context, .config = config, .device = store.device()}) {
  const tensor::NoGrad no_grad;
  state_->make_groups(policy, scaling, seed);
  state_->find_norm_group();
  state_->num_updates = state_->device_scalar(0);
  state_->max_norm = state_->device_scalar(config.clip_grad);
}

Optimizer::~Optimizer() = default;

Tensor Optimizer::gradient_squares() {
  const tensor::NoGrad no_grad;
  return state_->global_squares(&Piece::grad, /*frozen_too=*/false);
}

Tensor Optimizer::num_zero_gradients() {
  const tensor::NoGrad no_grad;
  const TimedScope timed(state_->timers, "optimizer-count-zeros", 1);
  return state_->global_sum(
      &Piece::grad, /*frozen_too=*/false,
      [](const Tensor& t, const Tensor& sum) { sum.add_(t.eq(0).sum(kAccumulationDType)); });
}

DeviceStepResult Optimizer::launch_step(const StepScalars& scalars,
                                        const AfterUpdate& after_update) {
  const tensor::NoGrad no_grad;
  State& state = *state_;
  const TimedScope timed(state.timers, "optimizer", 1);
  // No gather of the last step may still be writing what this one changes.
  state.store.settle();
  DeviceStepResult result{.grad_norm = scalars.grad_norm, .clip_factor = {}, .skipped = {}};
  if (!result.grad_norm.defined()) {
    const TimedScope norm(state.timers, "optimizer-clip-main-grad", 1);
    result.grad_norm = gradient_squares().sqrt();
  }
  {
    // The gradients themselves are unscaled inside the update; a norm that is not finite says that
    // one of them is not.
    const TimedScope check(state.timers, "optimizer-unscale-and-check-inf", 1);
    if (scalars.loss_scale.defined() && !scalars.grad_norm.defined()) {
      result.grad_norm.div_(scalars.loss_scale);
    }
    result.skipped = tensor::not_finite(result.grad_norm);
    if (scalars.skip.defined()) result.skipped = result.skipped.maximum(scalars.skip);
  }
  result.clip_factor = state.clip_factor(result.grad_norm);
  state.num_updates.add_(result.skipped.neg().add_(1));
  state.update({.lr = scalars.lr,
                .step = state.num_updates,
                .grad_scale = scalars.loss_scale.defined()
                                  ? result.clip_factor.div(scalars.loss_scale)
                                  : result.clip_factor,
                .weight_decay = scalars.weight_decay,
                .skip = result.skipped,
                .decoupled_lr = scalars.decoupled_lr,
                .width_lr = scalars.width_lr});
  if (after_update) after_update(state.store.pieces(), result.skipped);
  state.store.publish();
  return result;
}

OptimizerStepResult Optimizer::step(double lr, double weight_decay,
                                    std::optional<double> grad_norm) {
  const DeviceStepResult result =
      launch_step({.lr = state_->device_scalar(lr),
                   .weight_decay = state_->device_scalar(weight_decay),
                   .decoupled_lr = {},
                   .width_lr = {},
                   .loss_scale = {},
                   .skip = {},
                   .grad_norm = grad_norm ? state_->device_scalar(*grad_norm) : Tensor()});
  return {.grad_norm = result.grad_norm.item<double>(),
          .clip_factor = result.clip_factor.item<double>(),
          .skipped = result.skipped.item<double>() != 0};
}

std::int64_t Optimizer::num_updates() const {
  return static_cast<std::int64_t>(state_->num_updates.item<double>());
}

void Optimizer::set_num_updates(std::int64_t count) {
  PENTATRON_CHECK(count >= 0, kInternal, "{} is no number of updates", count);
  state_->num_updates.fill_(static_cast<double>(count));
}

std::vector<StateSlice> Optimizer::state_slices(bool owner_only) {
  State& state = *state_;
  state.store.settle();
  std::vector<StateSlice> slices;
  if (!owner_only || state.store.reduction_group().rank() == 0) {
    state.for_each_frozen_part([&](const nn::ShardPart& part, const Tensor& values) {
      if (!owner_only || part.replica == 0) slices.push_back({&part, "main_param", 0, values});
    });
  }
  if (owner_only && !state.store.owns_pieces()) return slices;
  for (const RuleGroup& group : state.groups) {
    const std::vector<std::string_view> kinds = group.rule->states();
    for (const Piece* piece : group.pieces) {
      if (owner_only && piece->part->replica != 0) continue;
      slices.push_back({piece->part, "main_param", piece->box_begin, piece->main});
      for (std::size_t s = 0; s < kinds.size(); ++s) {
        slices.push_back({piece->part, std::string(kinds[s]), piece->box_begin,
                          group.rule->stored_state(*piece, s)});
      }
    }
    for (const WholeState* whole : group.rule->whole_states()) {
      if (owner_only && whole->part.replica != 0) continue;
      slices.push_back({&whole->part, whole->kind, 0, whole->values.view({-1})});
    }
  }
  return slices;
}

void Optimizer::refresh_parameters() {
  const tensor::NoGrad no_grad;
  for (nn::Parameter* frozen : state_->store.layout().frozen()) frozen->values_changed();
  for (RuleGroup& group : state_->groups) group.rule->take_stored();
  state_->store.publish();
}

void Optimizer::reset_from_parameters() {
  const tensor::NoGrad no_grad;
  for (nn::Parameter* frozen : state_->store.layout().frozen()) frozen->values_changed();
  state_->store.reset_main();
  for (Piece& piece : state_->store.pieces()) {
    for (Tensor& state : piece.state) state.zero_();
  }
  for (RuleGroup& group : state_->groups) {
    for (WholeState* whole : group.rule->whole_states()) whole->values.zero_();
  }
  state_->num_updates.zero_();
}

void Optimizer::set_timers(Timers* timers) { state_->timers = timers; }

double Optimizer::parameter_norm() {
  const tensor::NoGrad no_grad;
  state_->store.settle();
  return std::sqrt(state_->global_squares(&Piece::main, /*frozen_too=*/true).item<double>());
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t bytes = state_->store.state_bytes();
  for (const RuleGroup& group : state_->groups) {
    for (const WholeState* whole : group.rule->whole_states()) {
      bytes += static_cast<std::int64_t>(whole->values.nbytes());
    }
  }
  return bytes;
}

}  // namespace pentatron::optimizer
