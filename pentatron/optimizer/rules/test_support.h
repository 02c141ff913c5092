// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/config/choices.h"
#include "pentatron/optimizer/optimizer.h"
#include "pentatron/optimizer/rules/whole_matrix.h"
#include "pentatron/tensor/ops.h"

// A small model of every kind of weight on every layout, for the tests of update rules. Only tests
// include it.
namespace pentatron::optimizer::testing_support {

struct Layout {
  std::int64_t tp = 1;
  std::int64_t dp = 1;
  distributed::Sharding sharding = distributed::Sharding::kNothing;
  bool on_host = false;
  double host_fraction = 1.0;
  bool overlap = false;
  [[nodiscard]] std::int64_t world() const { return tp * dp; }
};

inline std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << "tp " << l.tp << " dp " << l.dp << " sharding " << static_cast<int>(l.sharding)
             << (l.on_host ? " on the host" : "") << (l.overlap ? " with overlap" : "");
}

inline comm::RankGrid make_grid(const Layout& l) {
  return comm::RankGrid(
      {{"tp", l.tp, {}}, {"cp", 1, {}}, {"ep", 1, {}}, {"dp", l.dp, {}}, {"pp", 1, {}}});
}

inline Tensor whole_values(const std::string& name, const Shape& shape, int salt) {
  double phase = salt * 5.3;
  for (const char c : name) phase = std::fmod(phase * 1.37 + c, 50.0);
  return tensor::arange(tensor::num_elements(shape), DType::Double)
      .square()
      .mul(0.137)
      .add(phase)
      .sin()
      .view(shape);
}

// A part before it is cut: rows or columns over tp, or equal copies.
struct Rule {
  std::string name;
  Shape shape;
  nn::ShardRole role;
  int cut_dim;  // -1: copies
};

// Fused query, key and value (rows), a projection (columns), a gated pair (rows), an embedding, and
// vectors.
inline const std::vector<std::vector<Rule>>& weights() {
  static const std::vector<std::vector<Rule>> kWeights = {
      {{"qkv.q", {8, 6}, nn::ShardRole::kQkv, 0},
       {"qkv.k", {4, 6}, nn::ShardRole::kQkv, 0},
       {"qkv.v", {4, 6}, nn::ShardRole::kQkv, 0}},
      {{"proj", {6, 8}, nn::ShardRole::kMatrix, 1}},
      {{"fc1.gate", {10, 6}, nn::ShardRole::kMatrix, 0},
       {"fc1.up", {10, 6}, nn::ShardRole::kMatrix, 0}},
      {{"fc2", {6, 10}, nn::ShardRole::kMatrix, 1}},
      {{"embedding", {12, 6}, nn::ShardRole::kWordEmbedding, 0}},
      {{"norm", {6}, nn::ShardRole::kVector, -1}}};
  return kWeights;
}

inline nn::ShardPart lay_out(const Rule& rule, std::int64_t tp, std::int64_t rank) {
  nn::ShardPart part;
  part.name = rule.name;
  part.logical_shape = rule.shape;
  part.box = {Shape(rule.shape.size(), 0), rule.shape};
  part.role = rule.role;
  if (rule.cut_dim >= 0) {
    const auto dim = static_cast<std::size_t>(rule.cut_dim);
    part.box.size[dim] /= tp;
    part.box.offset[dim] = rank * part.box.size[dim];
    part.split_axes = {"tp"};
  } else {
    part.replicate_axes = {"tp"};
    part.replica = rank;
  }
  part.local_rows = part.box.size[0];
  return part;
}

struct Model {
  Model(comm::ParallelContext& context, const PrecisionPolicy& policy, Device device = kCpu) {
    for (const std::vector<Rule>& rules : weights()) {
      nn::ShardSpec spec;
      std::int64_t rows = 0;
      for (const Rule& rule : rules) {
        nn::ShardPart part = lay_out(rule, context.size("tp"), context.coordinate("tp"));
        part.local_row_begin = rows;
        rows += part.local_rows;
        spec.local_shape = part.box.size;
        spec.parts.push_back(std::move(part));
      }
      spec.local_shape[0] = rows;
      units.push_back({rules[0].name, {}});
      parameters.push_back(
          std::make_unique<nn::Parameter>(rules[0].name, std::move(spec), policy, device));
      units.back().parameters.push_back(parameters.back().get());
    }
  }
  std::vector<std::unique_ptr<nn::Parameter>> parameters;
  std::vector<nn::Unit> units;
};

inline constexpr double kStepRate = 0.02;
inline constexpr double kStepDecay = 0.1;

// One rank's model with its store and optimizer; weights and gradients are fixed values.
struct Rig {
  Rig(comm::Backend& backend, const Layout& layout, const PrecisionPolicy& policy,
      const config::OptimizerConfig& config)
      : context(backend, make_grid(layout)), model(context, policy) {
    const bool matrices = config::updates_matrices(config::optimizer_kind(config));
    store = std::make_unique<distributed::ParameterStore>(
        model.units, context,
        distributed::StoreOptions{
            .sharding = layout.sharding,
            .cut = matrices ? distributed::ShardCut::kMatrices : distributed::ShardCut::kElements,
            .bucket_bytes = 300,
            .state_on_host = layout.on_host,
            .host_fraction = layout.host_fraction,
            .overlap_host_copies = layout.overlap},
        policy);
    store->fill([](nn::Parameter& parameter) {
      for (const nn::ShardPart& part : parameter.spec().parts) {
        nn::part_view(parameter.data(), part)
            .copy_(in_box(whole_values(part.name, part.logical_shape, 0), part.box));
      }
    });
    optimizer = std::make_unique<Optimizer>(*store, context, config, policy, WidthScaling{}, kSeed);
  }

  void set_gradients(int step) {
    for (distributed::Piece& piece : store->pieces()) {
      const Tensor g =
          in_box(whole_values(piece.part->name, piece.part->logical_shape, step), piece.part->box);
      piece.grad.copy_(g.reshape({-1}).narrow(0, piece.box_begin, piece.length()));
    }
  }
  void train(int first, int end) {
    for (int step = first; step < end; ++step) {
      set_gradients(step + 1);
      (void)optimizer->step(kStepRate, kStepDecay);
    }
  }

  static constexpr std::uint64_t kSeed = 17;
  comm::ParallelContext context;
  Model model;
  std::unique_ptr<distributed::ParameterStore> store;
  std::unique_ptr<Optimizer> optimizer;
};

// Whole tensors of all state slices by "kind/part".
using WholeTensors = std::map<std::string, Tensor>;

// Copies a rank's slices into `whole`, or out of it (then `whole` is read).
inline void copy_state(Optimizer& optimizer, bool owner_only, WholeTensors& whole, bool out) {
  for (const StateSlice& slice : optimizer.state_slices(owner_only)) {
    const nn::ShardPart& part = *slice.part;
    Tensor& t = whole[slice.kind + "/" + part.name];
    if (!t.defined()) t = tensor::zeros(part.logical_shape, slice.values.scalar_type());
    const Tensor box = in_box(t, part.box).reshape({-1}).clone();
    const Tensor range = box.narrow(0, slice.box_begin, slice.values.numel());
    if (out) {
      Tensor(slice.values).copy_(range);
    } else {
      range.copy_(slice.values);
      in_box(t, part.box).copy_(box.view(part.box.size));
    }
  }
}

// The state that `train` leaves, gathered over all ranks. It runs on every rank; what ranks share
// is used under the lock.
inline WholeTensors state_after(const Layout& layout, const PrecisionPolicy& policy,
                                const config::OptimizerConfig& config,
                                const std::function<void(Rig&, std::mutex&)>& train) {
  WholeTensors whole;
  std::mutex mutex;
  comm::run_threads({.world_size = layout.world()}, [&](comm::Backend& backend) {
    Rig rig(backend, layout, policy, config);
    train(rig, mutex);
    const std::lock_guard lock(mutex);
    copy_state(*rig.optimizer, /*owner_only=*/true, whole, /*out=*/false);
  });
  return whole;
}

// The state after `steps`.
inline WholeTensors state_after(const Layout& layout, const PrecisionPolicy& policy,
                                const config::OptimizerConfig& config, int steps) {
  return state_after(layout, policy, config,
                     [steps](Rig& rig, std::mutex&) { rig.train(0, steps); });
}

// The state after four steps: two from `half`, that of two steps in another layout.
inline WholeTensors resumed_state(const Layout& layout, const PrecisionPolicy& policy,
                                  const config::OptimizerConfig& config, WholeTensors half) {
  return state_after(layout, policy, config, [&half](Rig& rig, std::mutex& mutex) {
    {
      const std::lock_guard lock(mutex);
      copy_state(*rig.optimizer, /*owner_only=*/false, half, /*out=*/true);
    }
    rig.optimizer->set_num_updates(2);
    rig.optimizer->refresh_parameters();
    rig.train(2, 4);
  });
}

// Largest difference over all tensors; they must have the same names.
inline double difference(const WholeTensors& a, const WholeTensors& b) {
  if (a.size() != b.size()) return 1e30;
  double worst = 0;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.scalar_type() != value.scalar_type()) return 1e30;
    const double here = value.sub(other->second).abs().max().item<double>();
    worst = std::isfinite(here) ? std::max(worst, here) : 1e30;
  }
  return worst;
}

// Whether an optimizer of whole matrices is made over a store that is cut by elements.
inline bool takes_cut_by_elements(const config::OptimizerConfig& config) {
  bool taken = false;
  comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
    comm::ParallelContext context(backend, make_grid({.dp = 2}));
    const PrecisionPolicy policy = precision_policy("fp32");
    Model model(context, policy);
    distributed::ParameterStore store(model.units, context,
                                      {.sharding = distributed::Sharding::kOptimizer}, policy);
    try {
      const Optimizer made(store, context, config, policy);
      if (backend.rank() == 0) taken = true;
    } catch (const Error&) {
      // Refused, on each rank.
    }
  });
  return taken;
}

// How far a step whose gradients are not finite moves the state that `steps` steps left: it must be
// skipped, and 0.
inline double change_by_skipped_step(const PrecisionPolicy& policy,
                                     const config::OptimizerConfig& config, int steps) {
  const auto backend = comm::make_single_backend();
  Rig rig(*backend, {}, policy, config);
  rig.train(0, steps);
  WholeTensors before, after;
  copy_state(*rig.optimizer, /*owner_only=*/true, before, /*out=*/false);
  for (distributed::Piece& piece : rig.store->pieces()) piece.grad.fill_(std::nan(""));
  if (!rig.optimizer->step(kStepRate, kStepDecay).skipped) return 1e30;
  copy_state(*rig.optimizer, /*owner_only=*/true, after, /*out=*/false);
  return difference(before, after);
}

}  // namespace pentatron::optimizer::testing_support
