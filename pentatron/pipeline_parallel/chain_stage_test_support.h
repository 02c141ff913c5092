// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/comm/backend.h"
#include "pentatron/comm/launch.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/linear.h"
#include "pentatron/ops/unit_events.h"
#include "pentatron/pipeline_parallel/executor.h"
#include "pentatron/pipeline_parallel/simulate.h"
#include "pentatron/pipeline_parallel/zero_bubble.h"
#include "pentatron/tensor/ops.h"

// A chain of stages without a model, and its outcome in one process. Only tests include it. Shapes:
// t tokens of a micro-batch, h hidden.
namespace pentatron::pipeline_parallel::test_support {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

inline constexpr std::int64_t kHidden = 6;
inline constexpr int kNumLayers = 6;

inline const PrecisionPolicy& policy() {
  static const PrecisionPolicy kFp64 = precision_policy("fp64");
  return kFp64;
}

// Any fixed well-spread values.
inline Tensor weight_values(int layer, std::int64_t hidden) {
  return tensor::arange(hidden * hidden, DType::Double)
      .mul(0.7 + 0.31 * layer)
      .add(layer)
      .sin()
      .mul(1.5 / std::sqrt(static_cast<double>(hidden)))
      .view({hidden, hidden});
}

inline Tensor embed(const Tensor& tokens_t, std::int64_t hidden) {
  return tokens_t.to(DType::Double)
      .add(1)
      .unsqueeze(1)
      .mul(tensor::arange(hidden, DType::Double).add(1))
      .sin();
}

// Sum over tokens of the squared distance to something that depends on the token.
inline Tensor loss_of(const Tensor& x_th, const Tensor& tokens_t) {
  return x_th.sub(tokens_t.to(DType::Double).mul(0.1).cos().unsqueeze(1)).square().sum();
}

inline Batch make_batch(int index, std::int64_t num_tokens) {
  Batch batch;
  batch.sequences.emplace(Batch::kText, SequenceRows{.boundaries = {0, num_tokens}});
  batch.fields.emplace("tokens",
                       tensor::arange(num_tokens, DType::Long).mul(index + 2).add(3 * index));
  return batch;
}
inline int index_of(const Batch& batch) {
  return static_cast<int>(batch.tokens()[0].item<std::int64_t>() / 3);
}

// Micro-batches of different sizes: shapes come from the specs, not from the first one seen.
inline std::vector<Batch> make_batches(int count) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(make_batch(i, 3 + i % 3));
  return batches;
}

inline nn::ShardSpec whole_spec(const std::string& name, Shape shape) {
  nn::ShardPart part;
  part.name = name;
  part.logical_shape = shape;
  part.box = {Shape(shape.size(), 0), shape};
  part.local_rows = shape[0];
  return {{part}, shape};
}

// Layers [begin, end) of a chain x <- tanh(x) W^T, each a unit. Edges carry the hidden state and,
// without gradient, the token ids.
class ChainStage final : public nn::Stage {
 public:
  ChainStage(int begin, int end, int num_layers = kNumLayers, std::int64_t hidden = kHidden)
      : begin_(begin), end_(end), num_layers_(num_layers), hidden_(hidden) {
    for (int layer = begin; layer < end; ++layer) {
      auto parameter = std::make_unique<nn::Parameter>(
          "weight", whole_spec("layers." + std::to_string(layer) + ".weight", {hidden, hidden}),
          policy());
      parameter->data().copy_(weight_values(layer, hidden));
      parameter->bind_grad(tensor::zeros({hidden, hidden}, DType::Double));
      weights_.push_back(&add_parameter(std::move(parameter)));
    }
  }

  nn::Bundle forward(const nn::Bundle& input, nn::StepContext& context) override {
    if (on_forward) on_forward();
    if (on_batch) on_batch(context.batch);
    grad_modes.push_back(tensor::grad_enabled());
    Tensor x = begin_ == 0 ? embed(context.batch.tokens(), hidden_) : input.at(0).tensor;
    for (int layer = begin_; layer < end_; ++layer) {
      nn::Parameter& w = *weight(layer);
      x = nn::run_unit(layer - begin_, x, context, [&w](const Tensor& in, nn::StepContext& step) {
        return ops::linear(in.tanh(), w, nullptr, step.scope);
      });
    }
    if (begin_ > 0) received.emplace_back(input.at(0).tensor.storage().getWeakStorageImpl());
    if (end_ == num_layers_) {
      const Tensor ids = begin_ == 0 ? context.batch.tokens() : input.at(1).tensor;
      return {{"loss", loss_of(x, ids), true}};
    }
    sent.emplace_back(x.storage().getWeakStorageImpl());
    return {{"hidden", x, true}, {"ids", context.batch.tokens(), false}};
  }

  nn::BundleSpec input_spec(const Batch& batch) const override {
    return begin_ == 0 ? nn::BundleSpec{} : edge(batch);
  }
  nn::BundleSpec output_spec(const Batch& batch) const override {
    return end_ == num_layers_ ? nn::BundleSpec{} : edge(batch);
  }
  std::vector<nn::Unit> units() override {
    std::vector<nn::Unit> units;
    for (int layer = begin_; layer < end_; ++layer) {
      units.push_back({"layers." + std::to_string(layer), {weight(layer)}});
    }
    return units;
  }
  nn::Parameter* weight(int layer) { return weights_[static_cast<std::size_t>(layer - begin_)]; }
  [[nodiscard]] int begin() const { return begin_; }
  [[nodiscard]] int end() const { return end_; }

  // How many of the tensors sent or received so far still have their memory.
  static int num_alive(const std::vector<WeakStorage>& tensors) {
    return static_cast<int>(std::count_if(tensors.begin(), tensors.end(),
                                          [](const WeakStorage& weak) { return !weak.expired(); }));
  }

  std::vector<bool> grad_modes;
  std::vector<WeakStorage> sent;
  std::vector<WeakStorage> received;
  std::function<void()> on_forward;
  std::function<void(const Batch&)> on_batch;

 private:
  nn::BundleSpec edge(const Batch& batch) const {
    return {{"hidden", {batch.num_tokens(), hidden_}, DType::Double, true},
            {"ids", {batch.num_tokens()}, DType::Long, false}};
  }

  int begin_;
  int end_;
  int num_layers_;
  std::int64_t hidden_;
  std::vector<nn::Parameter*> weights_;
};

inline std::vector<std::int64_t> all_ranks(std::int64_t count) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t r = 0; r < count; ++r) ranks.push_back(r);
  return ranks;
}

struct Outcome {
  double loss_sum = 0;
  std::vector<double> losses;
  std::vector<Tensor> grads = std::vector<Tensor>(kNumLayers);
};

// The same in one process with the library's own derivatives.
inline Outcome plain_reference(const std::vector<Batch>& batches, double seed) {
  const tensor::EnableGrad with_grad;
  std::vector<Tensor> weights;
  for (int layer = 0; layer < kNumLayers; ++layer) {
    weights.push_back(weight_values(layer, kHidden).requires_grad_(true));
  }
  Outcome outcome;
  for (const Batch& batch : batches) {
    Tensor x = embed(batch.tokens(), kHidden);
    for (const Tensor& w : weights) x = x.tanh().matmul(w.t());
    const Tensor loss = loss_of(x, batch.tokens());
    outcome.losses.push_back(loss.item<double>());
    outcome.loss_sum += outcome.losses.back();
    ops::run_backward(loss, tensor::scalar(seed, DType::Double));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) outcome.grads[i] = weights[i].grad();
  return outcome;
}

using MakeLists = std::vector<ActionList> (*)(const ScheduleShape&);

// What a rank did, as its stages and events saw it.
using Trace = std::vector<Action>;

using Body = std::function<void(comm::Backend&)>;
using RunRanks = void (*)(int, const Body&);

inline void over_threads(int num_ranks, const Body& body) {
  comm::run_threads({.world_size = num_ranks, .timeout = std::chrono::milliseconds(20'000)}, body);
}

// The processes' backend, here with its ranks in threads: sends over sockets instead of copies.
inline void over_gloo(int num_ranks, const Body& body) {
  const int port = comm::free_port();
  comm::run_threads({.world_size = num_ranks}, [&](comm::Backend& threads) {
    const auto backend = comm::make_gloo_backend({.rank = threads.rank(),
                                                  .world_size = num_ranks,
                                                  .master_port = port,
                                                  .timeout = std::chrono::milliseconds(20'000)});
    body(*backend);
    backend->shutdown();
  });
}

// The rank's two groups.
struct Groups {
  Groups(comm::Backend& backend, int num_ranks)
      : activations(backend.make_group(all_ranks(num_ranks), "pp")),
        gradients(backend.make_group(all_ranks(num_ranks), "pp#2")) {}
  operator PipelineGroups() const { return {*activations, *gradients}; }  // NOLINT
  std::unique_ptr<comm::Group> activations;
  std::unique_ptr<comm::Group> gradients;
};

inline void run_one(const ActionList& list, ChainStage& stage, const Groups& groups,
                    const std::vector<Batch>& batches, const ExecutorOptions& options) {
  const StageSlot slot{.stage = &stage};
  run_schedule(list, std::span(&slot, 1), groups, batches, options);
}

inline std::function<Tensor(const std::string&)> seed_of(double value) {
  return [value](const std::string& name) {
    EXPECT_EQ(name, "loss");
    return tensor::scalar(value, DType::Double);
  };
}

// Sees backwards by the events of a stage's last unit.
class BackwardWatch final : public ops::UnitEventSink {
 public:
  explicit BackwardWatch(std::function<void(int)> tell) : tell_(std::move(tell)) {}
  void on_backward_begin(int unit) override { tell_(unit); }

 private:
  std::function<void(int)> tell_;
};

struct Pipeline {
  int num_ranks = 1;
  int num_chunks = 1;
  nn::Phase phase = nn::Phase::kTrain;
};

// The rank's stages, equally many layers each.
inline std::vector<std::unique_ptr<ChainStage>> make_stages(const Pipeline& pipeline, int rank) {
  const int per_stage = kNumLayers / (pipeline.num_ranks * pipeline.num_chunks);
  std::vector<std::unique_ptr<ChainStage>> stages;
  for (int chunk = 0; chunk < pipeline.num_chunks; ++chunk) {
    const int begin = (chunk * pipeline.num_ranks + rank) * per_stage;
    stages.push_back(std::make_unique<ChainStage>(begin, begin + per_stage));
  }
  return stages;
}

inline std::vector<StageSlot> slots_of(const std::vector<std::unique_ptr<ChainStage>>& stages) {
  std::vector<StageSlot> slots;
  int unit = 0;
  for (const auto& stage : stages) {
    slots.push_back({.stage = stage.get(), .first_unit = unit});
    unit += stage->end() - stage->begin();
  }
  return slots;
}

inline Outcome run_pipeline(const Pipeline& pipeline, const std::vector<Batch>& batches,
                            double seed, MakeLists make_lists, RunRanks run_ranks = over_threads) {
  const auto lists =
      make_lists({pipeline.num_ranks, static_cast<int>(batches.size()), pipeline.num_chunks});
  Outcome outcome;
  outcome.losses.resize(batches.size());
  std::mutex mutex;
  run_ranks(pipeline.num_ranks, [&](comm::Backend& backend) {
    const Groups groups(backend, pipeline.num_ranks);
    const int rank = groups.activations->rank();
    const auto stages = make_stages(pipeline, rank);
    const bool trains = pipeline.phase == nn::Phase::kTrain;
    std::vector<int> last_calls;
    run_schedule(lists[static_cast<std::size_t>(rank)], slots_of(stages), groups, batches,
                 {.policy = policy(),
                  .phase = pipeline.phase,
                  .on_output =
                      [&](int chunk, int micro_batch, const nn::Bundle& output) {
                        EXPECT_EQ(rank, pipeline.num_ranks - 1);
                        EXPECT_EQ(chunk, pipeline.num_chunks - 1);
                        EXPECT_FALSE(output.at(0).tensor.requires_grad());
                        const std::lock_guard lock(mutex);
                        const double loss = output.at(0).tensor.item<double>();
                        outcome.losses[static_cast<std::size_t>(micro_batch)] = loss;
                        outcome.loss_sum += loss;
                      },
                  .seed_of = seed_of(seed),
                  .on_last_micro_batch = [&](int chunk) { last_calls.push_back(chunk); }});
    std::sort(last_calls.begin(), last_calls.end());
    std::vector<int> once_a_chunk(trains ? stages.size() : 0);
    std::iota(once_a_chunk.begin(), once_a_chunk.end(), 0);
    EXPECT_EQ(last_calls, once_a_chunk);
    EXPECT_TRUE(tensor::grad_enabled()) << "the mode of the rank must be put back";
    const std::lock_guard lock(mutex);
    for (const auto& stage : stages) {
      EXPECT_EQ(stage->grad_modes, std::vector<bool>(batches.size(), trains));
      for (int layer = stage->begin(); layer < stage->end(); ++layer) {
        outcome.grads[static_cast<std::size_t>(layer)] = stage->weight(layer)->main_grad();
      }
    }
  });
  return outcome;
}

inline void expect_equal(const Outcome& actual, const Outcome& expected, double tolerance) {
  EXPECT_NEAR(actual.loss_sum, expected.loss_sum, tolerance * std::abs(expected.loss_sum));
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < actual.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], tolerance * std::abs(expected.losses[i]));
  }
  for (std::size_t i = 0; i < expected.grads.size(); ++i) {
    const double largest = expected.grads[i].abs().max().item<double>();
    ASSERT_GT(largest, 0);
    EXPECT_LE(actual.grads[i].sub(expected.grads[i]).abs().max().item<double>(),
              tolerance * largest)
        << "layer " << i;
  }
}

}  // namespace pentatron::pipeline_parallel::test_support
