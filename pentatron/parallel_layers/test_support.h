// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/nn/module.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/random.h"

// What the tests of this module and of the modules above share: batches, ranks as threads, and the
// way from a rank's boxes to whole tensors. Only tests include it.
namespace pentatron::test_support {

using Tensors = std::map<std::string, Tensor>;

// max|a - b| / max|b|; a large number when shapes differ or something is not finite.
inline double difference(const Tensor& a, const Tensor& b) {
  constexpr double kWrong = 1e30;
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes()) return kWrong;
  if (b.numel() == 0) return 0.0;
  const double largest = b.to(DType::Double).abs().max().item<double>();
  const double off = a.to(DType::Double).sub(b.to(DType::Double)).abs().max().item<double>();
  if (!(off < kWrong) || !(largest < kWrong)) return kWrong;
  return largest == 0.0 ? off : off / largest;
}

// Largest difference over all tensors of `b`, each measured against max(its largest, floor x
// largest of all), with its name.
inline std::pair<double, std::string> worst_difference(const Tensors& a, const Tensors& b,
                                                       double floor = 1e-3) {
  if (a.size() != b.size()) return {1e30, "different names"};
  double overall = 0.0;
  for (const auto& [name, t] : b) {
    if (t.numel() > 0) overall = std::max(overall, t.abs().max().item<double>());
  }
  std::pair<double, std::string> worst{0.0, ""};
  for (const auto& [name, t] : b) {
    const auto found = a.find(name);
    if (found == a.end() || found->second.sizes() != t.sizes()) return {1e30, name};
    if (t.numel() == 0) continue;
    const double scale = std::max(t.abs().max().item<double>(), floor * overall);
    const double off =
        found->second.to(DType::Double).sub(t.to(DType::Double)).abs().max().item<double>();
    const double relative = scale == 0.0 ? off : off / scale;
    if (!(relative <= worst.first)) worst = {relative, name};
  }
  return worst;
}

// Normal values of the given name, fp64.
inline Tensor random_tensor(const Shape& shape, std::string_view name, double std = 1.0) {
  Tensor t = tensor::zeros(shape, DType::Double);
  tensor::fill_normal_keyed(t, 99, name, std, shape, Shape(shape.size(), 0));
  return t;
}

// A micro-batch: for each sample the lengths of its documents. Documents are attention segments and
// restart positions; tokens, labels and an uneven mask (values 0, 1 and 0.5) come from a fixed
// sequence.
inline Batch make_batch(const std::vector<std::vector<std::int64_t>>& samples,
                        std::int64_t vocab_size, std::uint64_t seed = 1) {
  SequenceRows rows{.boundaries = {0}, .samples = {0}};
  std::uint64_t state = seed * 2654435761U + 12345;
  const auto next = [&state] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int64_t>(state >> 33);
  };
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> labels;
  std::vector<float> mask;
  for (std::size_t sample = 0; sample < samples.size(); ++sample) {
    for (const std::int64_t length : samples[sample]) {
      for (std::int64_t position = 0; position < length; ++position) {
        tokens.push_back(next() % vocab_size);
        labels.push_back(next() % vocab_size);
        const std::int64_t draw = next() % 10;
        mask.push_back(draw < 3 ? 0.0F : (draw < 5 ? 0.5F : 1.0F));
        rows.sample_ids.push_back(static_cast<std::int64_t>(sample) + 40);
        rows.positions.push_back(position);
      }
      rows.boundaries.push_back(static_cast<std::int64_t>(tokens.size()));
    }
    rows.samples.push_back(static_cast<std::int64_t>(tokens.size()));
  }
  Batch batch;
  batch.sequences.emplace(Batch::kText, std::move(rows));
  batch.fields.emplace("tokens", tensor::from_vector(tokens));
  batch.fields.emplace("labels", tensor::from_vector(labels));
  batch.fields.emplace("loss_mask", tensor::from_vector(mask));
  return batch;
}

// A view of the box in a whole tensor.
inline Tensor slice(const Tensor& whole, const nn::Box& box) {
  Tensor t = whole;
  for (std::size_t d = 0; d < box.offset.size(); ++d) {
    t = t.narrow(static_cast<std::int64_t>(d), box.offset[d], box.size[d]);
  }
  return t;
}

// Puts the ranks' pieces together; safe to call from all rank threads.
class Gathered {
 public:
  // A piece that every holder has whole: copies must agree to 1e-12.
  void put(const std::string& name, const Shape& shape, const nn::Box& box, const Tensor& piece) {
    const std::lock_guard lock(mutex_);
    Tensor& known = slot(name, shape, seen_, 0.0);
    Tensor seen = slice(known, box);
    Tensor values = slice(slot(name, shape, tensors_, 0.0), box);
    const Tensor wide = piece.detach().to(DType::Double);
    if (piece.numel() > 0 && seen.min().item<double>() > 0.0) {
      const double off = difference(wide, values);
      PENTATRON_CHECK(off <= 1e-12, kInternal, "copies of {} differ by {}", name, off);
    }
    values.copy_(wide);
    seen.fill_(1.0);
  }
  // A piece that is only a summand.
  void add(const std::string& name, const Shape& shape, const nn::Box& box, const Tensor& piece) {
    const std::lock_guard lock(mutex_);
    slice(slot(name, shape, tensors_, 0.0), box).add_(piece.detach().to(DType::Double));
    slot(name, shape, seen_, 1.0);
  }
  // All main gradients of a module: partial and tied ones are summed, others are put.
  void gradients(nn::Module& module) {
    module.for_each_parameter([&](nn::Parameter& parameter) {
      parameter.finish_grad();
      for (const nn::ShardPart& part : parameter.spec().parts) {
        const Tensor piece = nn::part_view(parameter.main_grad(), part);
        if (part.partial_grad_axes.empty() && !part.tied) {
          put(part.name, part.logical_shape, part.box, piece);
        } else {
          add(part.name, part.logical_shape, part.box, piece);
        }
        const std::int64_t padding = part.local_rows - part.box.size[0];
        if (padding > 0) {
          const double most = parameter.main_grad()
                                  .narrow(0, part.local_row_begin + part.box.size[0], padding)
                                  .abs()
                                  .max()
                                  .item<double>();
          PENTATRON_CHECK(most == 0.0, kInternal, "padding of {} has a gradient", part.name);
        }
      }
    });
  }
  [[nodiscard]] const Tensors& tensors() const { return tensors_; }
  [[nodiscard]] const Tensor& at(const std::string& name) const { return tensors_.at(name); }
  // Every element of every put tensor was given.
  [[nodiscard]] bool complete() const {
    for (const auto& [name, seen] : seen_) {
      if (seen.numel() > 0 && seen.min().item<double>() == 0.0) return false;
    }
    return true;
  }

 private:
  static Tensor& slot(const std::string& name, const Shape& shape, Tensors& among, double fill) {
    auto found = among.find(name);
    if (found == among.end()) {
      found = among.emplace(name, tensor::full(shape, fill, DType::Double)).first;
    }
    return found->second;
  }

  std::mutex mutex_;
  Tensors tensors_;
  Tensors seen_;
};

// Gives every parameter a zeroed gradient buffer of its own.
inline void bind_gradients(nn::Module& module, const PrecisionPolicy& policy) {
  module.for_each_parameter([&](nn::Parameter& parameter) {
    parameter.bind_grad(tensor::full(parameter.spec().local_shape, 77.0, policy.main_grad));
  });
}

inline void initialise(nn::Module& module, std::uint64_t seed) {
  module.for_each_parameter([&](nn::Parameter& parameter) { parameter.initialise(seed); });
}

// Writes the rank's boxes of whole tensors (by part name) into a module's weights.
inline void load(nn::Module& module, const Tensors& whole) {
  module.for_each_parameter([&](nn::Parameter& parameter) {
    for (const nn::ShardPart& part : parameter.spec().parts) {
      nn::part_view(parameter.data(), part).copy_(slice(whole.at(part.name).detach(), part.box));
    }
  });
}

struct Layout {
  std::int64_t tensor_size = 1;
  bool sequence_parallel = false;
};

// Units over the tensor-parallel ranks; copies: of fewer units than ranks.
inline parallel_layers::Cut over_tp(std::int64_t units) {
  return {.axis = "tp", .units = units, .option = "units"};
}
inline parallel_layers::Cut copies_over_tp(std::int64_t units) {
  return {
      .axis = "tp", .units = units, .option = "units", .fewer = parallel_layers::FewerUnits::kCopy};
}

// `body` on this rank of `backend`, whose ranks are the tensor-parallel ones.
inline void in_layout(comm::Backend& backend, const Layout& layout, const PrecisionPolicy& policy,
                      const std::function<void(const parallel_layers::LeafContext&)>& body) {
  config::ParallelConfig parallel;
  parallel.world_size = layout.tensor_size;
  parallel.tensor_model_parallel_size = layout.tensor_size;
  comm::ParallelContext context(backend, comm::make_grids(parallel));
  body(parallel_layers::make_leaf_context(context, layout.sequence_parallel, policy));
  backend.shutdown();
}

// Runs `body` on every tensor-parallel rank, each a thread of this process.
inline void run_layout(const Layout& layout, const PrecisionPolicy& policy,
                       const std::function<void(const parallel_layers::LeafContext&)>& body) {
  comm::ThreadsOptions options;
  options.world_size = layout.tensor_size;
  options.timeout = std::chrono::milliseconds(30'000);
  comm::run_threads(options,
                    [&](comm::Backend& backend) { in_layout(backend, layout, policy, body); });
}

}  // namespace pentatron::test_support
