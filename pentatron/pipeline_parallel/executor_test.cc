// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/executor.h"

#include <gtest/gtest.h>

#include <mutex>

#include "pentatron/base/error.h"
#include "pentatron/comm/backend.h"
#include "pentatron/comm/launch.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/linear.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/ops.h"

// Shapes: t tokens of a micro-batch, h hidden.
namespace pentatron::pipeline_parallel {
namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

constexpr std::int64_t kHidden = 6;
constexpr int kNumLayers = 6;

const PrecisionPolicy& policy() {
  static const PrecisionPolicy kFp64 = precision_policy("fp64");
  return kFp64;
}

// Any fixed well-spread values.
Tensor weight_values(int layer, std::int64_t hidden) {
  return tensor::arange(hidden * hidden, DType::Double)
      .mul(0.7 + 0.31 * layer)
      .add(layer)
      .sin()
      .mul(1.5 / std::sqrt(static_cast<double>(hidden)))
      .view({hidden, hidden});
}

Tensor embed(const Tensor& tokens_t, std::int64_t hidden) {
  return tokens_t.to(DType::Double)
      .add(1)
      .unsqueeze(1)
      .mul(tensor::arange(hidden, DType::Double).add(1))
      .sin();
}

// Sum over tokens of the squared distance to something that depends on the token.
Tensor loss_of(const Tensor& x_th, const Tensor& tokens_t) {
  return x_th.sub(tokens_t.to(DType::Double).mul(0.1).cos().unsqueeze(1)).square().sum();
}

BatchMeta make_batch(int index, std::int64_t num_tokens) {
  BatchMeta batch;
  batch.num_tokens = num_tokens;
  batch.tokens = tensor::arange(num_tokens, DType::Long).mul(index + 2).add(3 * index);
  return batch;
}

// Micro-batches of different sizes: shapes come from the specs, not from the first one seen.
std::vector<BatchMeta> make_batches(int count) {
  std::vector<BatchMeta> batches;
  for (int i = 0; i < count; ++i) batches.push_back(make_batch(i, 3 + i % 3));
  return batches;
}

nn::ShardSpec whole_spec(const std::string& name, Shape shape) {
  nn::ShardPart part;
  part.name = name;
  part.logical_shape = shape;
  part.box = {Shape(shape.size(), 0), shape};
  part.local_rows = shape[0];
  return {{part}, shape};
}

// Layers [begin, end) of a chain x <- tanh(x) W^T. Edges carry the hidden state and, without
// gradient, the token ids.
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
    grad_modes.push_back(tensor::grad_enabled());
    Tensor x = begin_ == 0 ? embed(context.batch.tokens, hidden_) : input.at(0).tensor;
    for (int layer = begin_; layer < end_; ++layer) {
      x = ops::linear(x.tanh(), *weights_[static_cast<std::size_t>(layer - begin_)], nullptr,
                      in_unit(context.scope, layer));
    }
    if (begin_ > 0) received.emplace_back(input.at(0).tensor.storage().getWeakStorageImpl());
    if (end_ == num_layers_) {
      const Tensor ids = begin_ == 0 ? context.batch.tokens : input.at(1).tensor;
      return {{"loss", loss_of(x, ids), true}};
    }
    sent.emplace_back(x.storage().getWeakStorageImpl());
    return {{"hidden", x, true}, {"ids", context.batch.tokens, false}};
  }

  nn::BundleSpec input_spec(const BatchMeta& batch) const override {
    return begin_ == 0 ? nn::BundleSpec{} : edge(batch);
  }
  nn::BundleSpec output_spec(const BatchMeta& batch) const override {
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
  Tensor logits(const nn::Bundle& input, nn::StepContext& context) override { return Tensor(); }

  // How many of the tensors sent or received so far still have their memory.
  static int num_alive(const std::vector<WeakStorage>& tensors) {
    return static_cast<int>(std::count_if(tensors.begin(), tensors.end(),
                                          [](const WeakStorage& weak) { return !weak.expired(); }));
  }

  std::vector<bool> grad_modes;
  std::vector<WeakStorage> sent;
  std::vector<WeakStorage> received;
  std::function<void()> on_forward;

 private:
  nn::BundleSpec edge(const BatchMeta& batch) const {
    return {{"hidden", {batch.num_tokens, hidden_}, DType::Double, true},
            {"ids", {batch.num_tokens}, DType::Long, false}};
  }

  int begin_;
  int end_;
  int num_layers_;
  std::int64_t hidden_;
  std::vector<nn::Parameter*> weights_;
};

std::vector<std::int64_t> all_ranks(std::int64_t count) {
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
Outcome plain_reference(const std::vector<BatchMeta>& batches, double seed) {
  const tensor::EnableGrad with_grad;
  std::vector<Tensor> weights;
  for (int layer = 0; layer < kNumLayers; ++layer) {
    weights.push_back(weight_values(layer, kHidden).requires_grad_(true));
  }
  Outcome outcome;
  for (const BatchMeta& batch : batches) {
    Tensor x = embed(batch.tokens, kHidden);
    for (const Tensor& w : weights) x = x.tanh().matmul(w.t());
    const Tensor loss = loss_of(x, batch.tokens);
    outcome.losses.push_back(loss.item<double>());
    outcome.loss_sum += outcome.losses.back();
    ops::run_backward(loss, tensor::scalar(seed, DType::Double));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) outcome.grads[i] = weights[i].grad();
  return outcome;
}

using MakeLists = std::vector<ActionList> (*)(const ScheduleShape&);

using Body = std::function<void(comm::Backend&)>;
using RunRanks = void (*)(int, const Body&);

void over_threads(int num_ranks, const Body& body) {
  comm::run_threads({.world_size = num_ranks, .timeout = std::chrono::milliseconds(20'000)}, body);
}

// The processes' backend, here with its ranks in threads: sends over sockets instead of copies.
void over_gloo(int num_ranks, const Body& body) {
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

Outcome run_pipeline(int num_stages, const std::vector<BatchMeta>& batches, double seed,
                     MakeLists make_lists, nn::Phase phase = nn::Phase::kTrain,
                     RunRanks run_ranks = over_threads) {
  const auto lists = make_lists({num_stages, static_cast<int>(batches.size())});
  Outcome outcome;
  std::mutex mutex;
  run_ranks(num_stages, [&](comm::Backend& backend) {
    const auto group = backend.make_group(all_ranks(num_stages), "pp");
    const int rank = group->rank();
    const int per_stage = kNumLayers / num_stages;
    ChainStage stage(rank * per_stage, (rank + 1) * per_stage);
    const bool trains = phase == nn::Phase::kTrain;
    int last_calls = 0;
    const StepLosses losses = run_schedule(
        lists[static_cast<std::size_t>(rank)], stage, *group, batches,
        trains ? tensor::scalar(seed, DType::Double) : Tensor(),
        {.policy = policy(), .phase = phase, .on_last_micro_batch = [&] { ++last_calls; }});
    EXPECT_EQ(last_calls, trains ? 1 : 0);
    EXPECT_EQ(stage.grad_modes, std::vector<bool>(batches.size(), trains));
    EXPECT_TRUE(tensor::grad_enabled()) << "the mode of the rank must be put back";
    const std::lock_guard lock(mutex);
    if (rank + 1 == num_stages) {
      outcome.loss_sum = losses.loss_sum.item<double>();
      for (const Tensor& t : losses.per_micro_batch) {
        outcome.losses.push_back(t.item<double>());
      }
    } else {
      EXPECT_FALSE(losses.loss_sum.defined());
    }
    for (int layer = stage.begin(); layer < stage.end(); ++layer) {
      outcome.grads[static_cast<std::size_t>(layer)] = stage.weight(layer)->main_grad();
    }
  });
  return outcome;
}

void expect_equal(const Outcome& actual, const Outcome& expected, double tolerance) {
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

TEST(Executor, EveryPipelineEqualsOneProcess) {
  constexpr double kSeed = 1.0 / 37;
  for (const int num_micro_batches : {1, 2, 5}) {
    const auto batches = make_batches(num_micro_batches);
    const Outcome expected = plain_reference(batches, kSeed);
    for (const int num_stages : {1, 2, 3, 6}) {
      SCOPED_TRACE(testing::Message()
                   << num_stages << " stages, " << num_micro_batches << " micro-batches");
      expect_equal(run_pipeline(num_stages, batches, kSeed, one_forward_one_backward), expected,
                   1e-12);
      expect_equal(run_pipeline(num_stages, batches, kSeed, one_forward_one_backward_split_weight),
                   expected, 1e-12);
    }
  }
}

TEST(Executor, RunsOverSockets) {
  const auto batches = make_batches(5);
  const Outcome expected = plain_reference(batches, 0.125);
  for (const MakeLists make : {&one_forward_one_backward, &one_forward_one_backward_split_weight}) {
    expect_equal(run_pipeline(3, batches, 0.125, make, nn::Phase::kTrain, over_gloo), expected,
                 1e-12);
  }
  EXPECT_NEAR(run_pipeline(3, batches, 1, forward_only, nn::Phase::kEvaluate, over_gloo).loss_sum,
              expected.loss_sum, 1e-12 * expected.loss_sum);
}

TEST(Executor, ForwardOnlyReturnsLossesWithoutGraph) {
  const auto batches = make_batches(7);
  Outcome expected = plain_reference(batches, 1.0);
  for (const int num_stages : {1, 3}) {
    const Outcome actual =
        run_pipeline(num_stages, batches, 1.0, forward_only, nn::Phase::kEvaluate);
    EXPECT_NEAR(actual.loss_sum, expected.loss_sum, 1e-12 * expected.loss_sum);
    ASSERT_EQ(actual.losses.size(), batches.size());
    for (const Tensor& grad : actual.grads) EXPECT_EQ(grad.abs().max().item<double>(), 0.0);
  }
}

// A stage keeps the gradient edge, not the sent tensor: its memory goes as soon as the other side
// has answered.
TEST(Executor, SentAndReceivedActivationsAreFreed) {
  constexpr int kMicroBatches = 8;
  const auto batches = make_batches(kMicroBatches);
  const auto lists = one_forward_one_backward({2, kMicroBatches});
  comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
    const auto group = backend.make_group(all_ranks(2), "pp");
    ChainStage stage(group->rank() * 3, group->rank() * 3 + 3);
    int most_alive = 0;
    int most_received = 0;
    int alive_at_last_backward = -1;
    stage.on_forward = [&] {
      most_alive = std::max(most_alive, ChainStage::num_alive(stage.sent));
      most_received = std::max(most_received, ChainStage::num_alive(stage.received));
    };
    (void)run_schedule(lists[static_cast<std::size_t>(group->rank())], stage, *group, batches,
                       tensor::scalar(1, DType::Double),
                       {.policy = policy(), .on_last_micro_batch = [&] {
                          alive_at_last_backward = ChainStage::num_alive(stage.sent);
                        }});
    EXPECT_EQ(ChainStage::num_alive(stage.sent), 0);
    EXPECT_EQ(most_received, 0) << "the last stage is done with an input before the next comes";
    if (group->rank() == 0) {
      EXPECT_EQ(stage.sent.size(), static_cast<std::size_t>(kMicroBatches));
      EXPECT_LE(most_alive, 1);
      EXPECT_EQ(alive_at_last_backward, 0)
          << "the graph of the last backward is whole, its output is gone";
    }
  });
}

std::int64_t peak_bytes(int num_micro_batches) {
  const auto lists = one_forward_one_backward({1, num_micro_batches});
  std::vector<BatchMeta> batches;
  for (int i = 0; i < num_micro_batches; ++i) batches.push_back(make_batch(i, 64));
  ChainStage stage(0, 4, 4, 64);
  const auto backend = comm::make_single_backend();
  const auto group = backend->make_group({0}, "pp");
  const tensor::MemoryMeter meter;
  (void)run_schedule(lists[0], stage, *group, batches, tensor::scalar(1, DType::Double),
                     {.policy = policy()});
  EXPECT_LT(meter.current_bytes(), 4096) << "a step leaves nothing behind";
  return meter.peak_bytes();
}

TEST(Executor, PeakMemoryDoesNotGrowWithMicroBatches) {
  const std::int64_t two = peak_bytes(2);
  EXPECT_GT(two, 64 * 64 * 8);
  EXPECT_LE(peak_bytes(12), two + 4096);
}

// Collects what the queue and the callback report.
TEST(Executor, SplitWeightRunsEachMicroBatchInItsAction) {
  const auto batches = make_batches(3);
  ChainStage stage(0, kNumLayers);
  const auto backend = comm::make_single_backend();
  const auto group = backend->make_group({0}, "pp");
  WeightGradQueue queue;
  std::vector<int> done;
  const auto listening = queue.on_unit_done([&](int layer) { done.push_back(layer); });
  std::vector<std::size_t> pending_at_forward;
  stage.on_forward = [&] { pending_at_forward.push_back(queue.pending()); };
  using K = ActionKind;
  const ActionList list = {
      {K::kForward, 0},        {K::kBackward, 0},       {K::kForward, 1},
      {K::kBackward, 1},       {K::kBackwardWeight, 0}, {K::kForward, 2},
      {K::kBackwardWeight, 1}, {K::kBackward, 2},       {K::kBackwardWeight, 2}};
  (void)run_schedule(list, stage, *group, batches, tensor::scalar(0.5, DType::Double),
                     {.policy = policy(), .weight_grads = &queue});
  const std::vector<std::size_t> expected_pending = {0, kNumLayers, kNumLayers};
  EXPECT_EQ(pending_at_forward, expected_pending);
  EXPECT_EQ(queue.pending(), 0U);
  EXPECT_FALSE(queue.postpone()) << "the caller's setting is put back";
  // Layers report when nothing of theirs is left: after micro-batches 1 and 2, last layer first.
  const std::vector<int> expected_done = {5, 4, 3, 2, 1, 0, 5, 4, 3, 2, 1, 0};
  EXPECT_EQ(done, expected_done);
}

TEST(Executor, PostponedGradientsAreNotLost) {
  const auto batches = make_batches(2);
  const Outcome expected = plain_reference(batches, 1.0);
  ChainStage stage(0, kNumLayers);
  const auto backend = comm::make_single_backend();
  const auto group = backend->make_group({0}, "pp");
  WeightGradQueue queue;
  queue.set_postpone(true);
  (void)run_schedule(one_forward_one_backward({1, 2})[0], stage, *group, batches,
                     tensor::scalar(1, DType::Double),
                     {.policy = policy(), .weight_grads = &queue});
  EXPECT_EQ(queue.pending(), 0U);
  EXPECT_TRUE(queue.postpone());
  const Tensor grad = stage.weight(2)->main_grad();
  EXPECT_LE(grad.sub(expected.grads[2]).abs().max().item<double>(), 1e-11);
}

// A stage that fails in the middle of a step ends all ranks with its own error, without waiting for
// sends that nobody takes.
TEST(Executor, AnErrorEndsEveryRank) {
  const auto batches = make_batches(6);
  const auto lists = one_forward_one_backward({3, 6});
  for (int failing = 0; failing < 3; ++failing) {
    try {
      comm::run_threads({.world_size = 3, .timeout = std::chrono::milliseconds(60'000)},
                        [&](comm::Backend& backend) {
                          const auto group = backend.make_group(all_ranks(3), "pp");
                          const int rank = group->rank();
                          ChainStage stage(rank * 2, rank * 2 + 2);
                          int forwards = 0;
                          stage.on_forward = [&] {
                            PENTATRON_CHECK(rank != failing || ++forwards < 3, kData,
                                            "planted failure of stage {}", rank);
                          };
                          (void)run_schedule(lists[static_cast<std::size_t>(rank)], stage, *group,
                                             batches, tensor::scalar(1, DType::Double),
                                             {.policy = policy()});
                        });
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), "planted failure of stage " + std::to_string(failing));
    }
  }
}

TEST(Executor, RefusesWhatItCannotRun) {
  const auto batches = make_batches(1);
  ChainStage stage(0, kNumLayers);
  const auto backend = comm::make_single_backend();
  const auto group = backend->make_group({0}, "pp");
  const ExecutorOptions options{.policy = policy()};
  const Tensor seed = tensor::scalar(1, DType::Double);
  const auto run = [&](const ActionList& list, const Tensor& loss_seed) {
    (void)run_schedule(list, stage, *group, batches, loss_seed, options);
  };
  EXPECT_THROW(run({{ActionKind::kForward, 0, 1}}, seed), Error);
  EXPECT_THROW(run({{ActionKind::kForward, 1, 0}}, seed), Error);
  EXPECT_THROW(run({{ActionKind::kForward, 0, 0}, {ActionKind::kBackward, 0, 0}}, Tensor()), Error);
}

}  // namespace
}  // namespace pentatron::pipeline_parallel
