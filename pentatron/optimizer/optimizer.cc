// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/fault.h"
#include "pentatron/ops/adamw.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {
namespace {

// The piece of a part that this rank updates, with views of everything that belongs to it.
struct Piece {
  const nn::ShardPart* part = nullptr;
  std::int64_t box_begin = 0;
  Tensor parameter;  // in the flat parameter buffer
  Tensor main;       // the same view where the dtypes agree
  Tensor grad;
  Tensor exp_avg;     // Adam's first moment, or SGD's momentum
  Tensor exp_avg_sq;  // Adam only
};

// Element range of the flat buffer whose state this rank owns.
using Range = std::pair<std::int64_t, std::int64_t>;

// Test-only switches, read once.
struct Faults {
  bool count_replicas = planted_fault("norm_counts_replicas");
  bool clip_wrong = planted_fault("clip_factor_wrong");
  bool decay_on_bias = planted_fault("decay_on_bias");
  bool step_off_by_one = planted_fault("adam_step_off_by_one");
  bool skip_gather = planted_fault("skip_param_gather");
};

// Added to the norm before the division, as in the usual clipping by norm.
constexpr double kClipEpsilon = 1e-6;

// Axes that cut or copy the model: those of the grid over which gradients are not summed. Ranks
// that differ only on the others hold the same when nothing is sharded.
std::vector<std::string> model_axes(const comm::RankGrid& grid,
                                    const std::vector<std::string>& reduction_axes) {
  const auto reduced = [&](const auto& axis) {
    return std::find(reduction_axes.begin(), reduction_axes.end(), axis.name) !=
           reduction_axes.end();
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

}  // namespace

struct Optimizer::State {
  distributed::FlatBuffer& buffer;
  comm::ParallelContext& context;
  config::OptimizerConfig config;
  PrecisionPolicy policy;
  bool sharded;
  comm::Group& dp;                    // over the buffer's reduction axes
  comm::Group* norm_group = nullptr;  // sums squares; null: this rank has all
  Timers* timers = nullptr;
  Faults faults{};
  bool adam = true;
  bool own_main = false;  // main parameters are a copy in another dtype
  Tensor main{};          // 1-D over this rank's ranges, one after another
  Tensor exp_avg{};
  Tensor exp_avg_sq{};
  std::vector<Piece> pieces{};
  Device device{"cpu"};
  Tensor num_updates{};  // fp64 scalar on the device: a skipped step does not count
  Tensor max_norm{};     // --clip-grad

  void allocate() {
    PENTATRON_CHECK(config.optimizer == "adam" || config.optimizer == "sgd", kConfig,
                    "--optimizer is '{}', expected adam or sgd", config.optimizer);
    PENTATRON_CHECK(buffer.parameters().defined(), kInternal,
                    "the optimizer needs parameters in a flat buffer (parameters_too)");
    PENTATRON_CHECK(!sharded || buffer.reduction_size() == dp.size(), kInternal,
                    "the flat buffer is cut for {} ranks, the group over its reduction axes has {}",
                    buffer.reduction_size(), dp.size());
    PENTATRON_CHECK(
        tensor::item_bytes(policy.main_parameter) >= 4 && tensor::item_bytes(policy.state) >= 4,
        kUnsupported,
        "main parameters in {} and moments in {} are not built yet (stochastic rounding); use "
        "--bf16",
        tensor::dtype_name(policy.main_parameter), tensor::dtype_name(policy.state));
    adam = config.optimizer == "adam";
    own_main = policy.main_parameter != policy.parameter;
    const std::vector<Range> ranges = own_ranges();
    std::int64_t length = 0;
    for (const Range& range : ranges) length += range.second - range.first;
    device = buffer.grads().device();
    if (own_main) main = tensor::zeros({length}, policy.main_parameter, device);
    if (adam || config.sgd_momentum != 0) exp_avg = tensor::zeros({length}, policy.state, device);
    if (adam) exp_avg_sq = tensor::zeros({length}, policy.state, device);
    std::int64_t begin = 0;
    for (const Range& range : ranges) {
      add_pieces(range, begin);
      begin += range.second - range.first;
    }
    num_updates = device_scalar(0);
    max_norm = device_scalar(config.clip_grad);
    // Sharded: every rank has another share. Otherwise only the model is cut.
    const std::vector<std::string> axes = model_axes(context.grid(), buffer.reduction_axes());
    if (sharded) {
      norm_group = &context.world();
    } else if (!axes.empty()) {
      norm_group = &context.group(axes);
    }
  }

  [[nodiscard]] Tensor device_scalar(double value) const {
    return tensor::scalar(value, kAccumulationDType, device);
  }

  [[nodiscard]] std::vector<Range> own_ranges() const {
    if (!sharded) return {{0, buffer.num_elements()}};
    std::vector<Range> ranges;
    for (std::size_t b = 0; b < buffer.buckets().size(); ++b) {
      ranges.push_back(buffer.shard_range(b, dp.rank()));
    }
    return ranges;
  }

  // Pieces of a range whose state begins at `state_begin` of the state tensors.
  void add_pieces(const Range& range, std::int64_t state_begin) {
    for (const distributed::FlatSegment& s :
         distributed::segments_in(buffer, range.first, range.second)) {
      const std::int64_t at = state_begin + s.flat_begin - range.first;
      const auto state_view = [&](const Tensor& t) {
        return t.defined() ? t.narrow(0, at, s.length) : Tensor();
      };
      Piece piece;
      piece.part = s.part;
      piece.box_begin = s.box_begin;
      piece.parameter = buffer.parameters().narrow(0, s.flat_begin, s.length);
      piece.main = own_main ? state_view(main) : piece.parameter;
      piece.grad = buffer.grads().narrow(0, s.flat_begin, s.length);
      piece.exp_avg = state_view(exp_avg);
      piece.exp_avg_sq = state_view(exp_avg_sq);
      pieces.push_back(std::move(piece));
    }
  }

  // Calls visit(part, values) with a 1-D view of every part of a frozen parameter. All ranks of the
  // reduction group hold them whole.
  template <typename Visit>
  void for_each_frozen_part(const Visit& visit) {
    for (nn::Parameter* parameter : buffer.frozen()) {
      for (const nn::ShardPart& part : parameter->spec().parts) {
        if (part.box.empty()) continue;
        visit(part, nn::part_view(parameter->data(), part).view({-1}));
      }
    }
  }

  // `add(values, sum)` over the pieces that count, in fp64, in the order of the buffer, and then
  // the sum over the group in the backend's fixed order.
  template <typename Add>
  Tensor global_sum(Tensor Piece::*values, bool frozen_too, const Add& add) {
    Tensor sum = device_scalar(0);
    for (const Piece& piece : pieces) {
      if (piece.part->replica == 0 || faults.count_replicas) add(piece.*values, sum);
    }
    if (frozen_too && (!sharded || dp.rank() == 0)) {
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
    const Tensor measured = faults.clip_wrong ? norm.square() : norm;
    return max_norm.div(measured.add(kClipEpsilon)).clamp_max_(1.0);
  }

  void update(const ops::AdamScalars& usual, const Tensor& decoupled_lr) {
    const TimedScope timed(timers, "optimizer-inner-step", 1);
    ops::AdamScalars decoupled = usual;
    if (decoupled_lr.defined()) decoupled.lr = decoupled_lr;
    for (Piece& piece : pieces) {
      const ops::AdamScalars& scalars = piece.part->embedding_or_output ? decoupled : usual;
      const double decay = piece.part->decay || faults.decay_on_bias ? 1.0 : 0.0;
      if (adam) {
        ops::adamw_step(piece.main, piece.grad, piece.exp_avg, piece.exp_avg_sq, scalars,
                        {config.adam_beta1, config.adam_beta2, config.adam_eps, decay});
      } else {
        ops::sgd_step(piece.main, piece.grad, piece.exp_avg, scalars, config.sgd_momentum, decay);
      }
    }
  }

  // Parameters := rounded main parameters, everywhere.
  void publish() {
    if (own_main) {
      const TimedScope timed(timers, "optimizer-copy-main-to-model-params", 1);
      for (Piece& piece : pieces) piece.parameter.copy_(piece.main);
    }
    const TimedScope timed(timers, "params-all-gather", 1);
    if (!sharded || dp.size() == 1 || faults.skip_gather) return;
    std::vector<comm::WorkPtr> works;
    for (std::size_t b = 0; b < buffer.buckets().size(); ++b) {
      const distributed::FlatBucket& bucket = buffer.buckets()[b];
      const Range own = buffer.shard_range(b, dp.rank());
      const Tensor whole = buffer.parameters().narrow(0, bucket.begin, bucket.end - bucket.begin);
      // A copy: not every backend allows the input to lie inside the output.
      const Tensor shard = buffer.parameters().narrow(0, own.first, own.second - own.first).clone();
      works.push_back(dp.all_gather(whole, shard));
    }
    for (comm::WorkPtr& work : works) work->wait();
  }
};

Optimizer::Optimizer(distributed::FlatBuffer& buffer, comm::ParallelContext& context,
                     const config::OptimizerConfig& config, const PrecisionPolicy& policy,
                     bool sharded)
    : state_(new State{.buffer = buffer,
                       .context = context,
                       .config = config,
                       .policy = policy,
                       .sharded = sharded,
                       .dp = context.group(buffer.reduction_axes())}) {
  const tensor::NoGrad no_grad;
  state_->allocate();
  reset_from_parameters();
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

DeviceStepResult Optimizer::launch_step(const StepScalars& scalars) {
  const tensor::NoGrad no_grad;
  State& state = *state_;
  const TimedScope timed(state.timers, "optimizer", 1);
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
  state.update(
      {.lr = scalars.lr,
       .step = state.faults.step_off_by_one ? state.num_updates.add(1) : state.num_updates,
       .grad_scale = scalars.loss_scale.defined() ? result.clip_factor.div(scalars.loss_scale)
                                                  : result.clip_factor,
       .weight_decay = scalars.weight_decay,
       .skip = result.skipped},
      scalars.decoupled_lr);
  state.publish();
  return result;
}

OptimizerStepResult Optimizer::step(double lr, double weight_decay,
                                    std::optional<double> grad_norm) {
  const DeviceStepResult result =
      launch_step({.lr = state_->device_scalar(lr),
                   .weight_decay = state_->device_scalar(weight_decay),
                   .decoupled_lr = {},
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
  std::vector<StateSlice> slices;
  if (!owner_only || state_->dp.rank() == 0) {
    state_->for_each_frozen_part([&](const nn::ShardPart& part, const Tensor& values) {
      if (!owner_only || part.replica == 0) slices.push_back({&part, "main_param", 0, values});
    });
  }
  if (owner_only && !state_->sharded && state_->dp.rank() > 0) return slices;
  for (Piece& piece : state_->pieces) {
    if (owner_only && piece.part->replica != 0) continue;
    const auto add = [&](const char* kind, const Tensor& values) {
      if (values.defined()) slices.push_back({piece.part, kind, piece.box_begin, values});
    };
    add("main_param", piece.main);
    add(state_->adam ? "exp_avg" : "momentum", piece.exp_avg);
    add("exp_avg_sq", piece.exp_avg_sq);
  }
  return slices;
}

void Optimizer::refresh_parameters() {
  const tensor::NoGrad no_grad;
  state_->publish();
}

void Optimizer::reset_from_parameters() {
  const tensor::NoGrad no_grad;
  if (state_->own_main) {
    for (Piece& piece : state_->pieces) piece.main.copy_(piece.parameter);
  }
  if (state_->exp_avg.defined()) state_->exp_avg.zero_();
  if (state_->exp_avg_sq.defined()) state_->exp_avg_sq.zero_();
  state_->num_updates.zero_();
}

void Optimizer::set_timers(Timers* timers) { state_->timers = timers; }

double Optimizer::parameter_norm() {
  const tensor::NoGrad no_grad;
  return std::sqrt(state_->global_squares(&Piece::main, /*frozen_too=*/true).item<double>());
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t bytes = 0;
  for (const Tensor& t : {state_->main, state_->exp_avg, state_->exp_avg_sq}) {
    if (t.defined()) bytes += t.numel() * tensor::item_bytes(t.scalar_type());
  }
  return bytes;
}

}  // namespace pentatron::optimizer
