// SPDX-License-Identifier: Apache-2.0
// What split linears save, in which order they compute and communicate, and that no collective of
// theirs can be left out. That their numbers are those of one process is in leaves_test.cc.
#include "pentatron/parallel_layers/split_linear.h"

#include <gtest/gtest.h>

#include <atomic>

#include "pentatron/base/error.h"
#include "pentatron/ops/activation.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/linear.h"
#include "pentatron/parallel_layers/column_linear.h"
#include "pentatron/parallel_layers/core_attention.h"
#include "pentatron/parallel_layers/norm.h"
#include "pentatron/parallel_layers/row_linear.h"
#include "pentatron/parallel_layers/test_support.h"
#include "pentatron/parallel_layers/vocab_head.h"
#include "pentatron/parallel_layers/watched_group_test_support.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/rebuild_activations.h"

namespace pentatron::parallel_layers {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kVocab = 64;
constexpr std::int64_t kActivation = kTokens * kHidden * 8;  // bytes of one, fp64

PrecisionPolicy fp64() { return precision_policy("fp64"); }

// The leaves of a transformer layer and a head, as a model puts them together.
class TinyLayer final : public nn::Module {
 public:
  explicit TinyLayer(const LeafContext& context) : context_(context) {
    const auto plan = [&](const std::string& name, std::vector<PartRule> parts) {
      nn::ParameterPlan out;
      for (PartRule& rule : parts) {
        rule.name = name + "." + rule.name;
        rule.init.std = 0.3;
      }
      out.add({name + ".weight", lay_out(parts, context.layout()), 0});
      return out;
    };
    const std::vector<PartRule> whole{{"w", kHidden}};
    norm1_ = &add_child(std::make_unique<Norm>(context, plan("n1", whole), "n1",
                                               NormForm{.kind = NormKind::kRmsNorm}));
    qkv_ = &add_child(
        std::make_unique<ColumnLinear>(context,
                                       plan("qkv", {{"q", kHidden, kHidden, over_tp(4)},
                                                    {"k", kHidden, kHidden, over_tp(4)},
                                                    {"v", kHidden, kHidden, over_tp(4)}}),
                                       "qkv"));
    core_ = &add_child(std::make_unique<CoreAttention>(
        context, nn::ParameterPlan(), "core", *qkv_,
        CoreAttention::Options{.head_dim = 8, .dropout = 0.0, .site = "core", .cache_layer = 0}));
    proj_ = &add_child(std::make_unique<RowLinear>(
        context, plan("proj", {{"w", kHidden, kHidden, over_tp(4), true}}), "proj"));
    norm2_ = &add_child(std::make_unique<Norm>(context, plan("n2", whole), "n2",
                                               NormForm{.kind = NormKind::kRmsNorm}));
    fc1_ = &add_child(std::make_unique<ColumnLinear>(
        context, plan("fc1", {{"w", 4 * kHidden, kHidden, over_tp(4)}}), "fc1"));
    fc2_ = &add_child(std::make_unique<RowLinear>(
        context, plan("fc2", {{"w", kHidden, 4 * kHidden, over_tp(4), true}}), "fc2"));
    head_ = &add_child(std::make_unique<VocabHead>(
        context, plan("head", {{"w", kVocab, kHidden, over_tp(kVocab)}}), "head"));
    initialise(*this, 3);
    bind_gradients(*this, fp64());
  }

  Tensor hidden(const Tensor& x, nn::StepContext& step) {
    const std::vector<Tensor> qkv = qkv_->forward_heads(norm1_->forward(x, step), 8, step);
    const Tensor y = x.add(proj_->forward(core_->forward(qkv[0], qkv[1], qkv[2], step), step));
    const Tensor h = fc1_->forward(norm2_->forward(y, step), step);
    return y.add(fc2_->forward(ops::gelu_tanh(h, step.scope), step));
  }
  Tensor loss(const Tensor& x, nn::StepContext& step) { return head_->loss(hidden(x, step), step); }

 private:
  LeafContext context_;
  Norm* norm1_;
  ColumnLinear* qkv_;
  CoreAttention* core_;
  RowLinear* proj_;
  Norm* norm2_;
  ColumnLinear* fc1_;
  RowLinear* fc2_;
  VocabHead* head_;
};

Batch batch() { return make_batch({{kTokens}}, kVocab); }

Tensor input(const LeafContext& context) {
  const LeafContext::Rows rows = context.local_rows(kTokens);
  return slice(random_tensor({kTokens, kHidden}, "x"), {{rows.begin, 0}, {rows.size, kHidden}})
      .clone()
      .set_requires_grad(true);
}

// Bytes that all ranks together hold between forward and backward.
std::int64_t held_bytes(const Layout& layout, bool with_head, SavePolicy* saves = nullptr) {
  std::atomic<std::int64_t> held{0};
  run_layout(layout, fp64(), [&](const LeafContext& context) {
    const bool alone = context.size("tp") == 1;
    const auto meet = [&] {
      if (!alone) context.group("tp").barrier();
    };
    TinyLayer layer(context);
    const Batch meta = batch();
    const PrecisionPolicy policy = fp64();
    nn::StepContext step{.batch = meta, .policy = policy, .scope = {.saves = saves}};
    const Tensor x = input(context);
    std::unique_ptr<tensor::MemoryMeter> meter;
    meet();
    if (context.coordinate("tp") == 0) meter = std::make_unique<tensor::MemoryMeter>();
    meet();
    const Tensor y = with_head ? layer.loss(x, step) : layer.hidden(x, step);
    meet();
    if (meter != nullptr) held = meter->current_bytes();
    meet();
    ops::run_backward(y, tensor::ones(y.sizes(), DType::Double));
  });
  return held;
}

// The proof of contract "a layer's saved bytes fall by TP": with the rows shared, n ranks together
// hold what one alone does.
TEST(SplitLinear, SavedBytesOfALayerFallByTheRanks) {
  for (const bool with_head : {false, true}) {
    const std::int64_t one = held_bytes({1, false}, with_head);
    EXPECT_GT(one, 15 * kActivation);
    for (const std::int64_t size : {2, 4}) {
      const std::int64_t shared = held_bytes({size, true}, with_head);
      EXPECT_LE(shared, one + one / 20) << size << " ranks, with head " << with_head;
      // Without sharing each rank holds the layer's row-wise activations whole.
      EXPECT_GT(held_bytes({size, false}, with_head), one + 3 * (size - 1) * kActivation);
    }
  }
}

// Collectives and writes of a column linear's backward, in order.
std::string order_of(bool sequence_parallel, bool postpone) {
  std::string order;
  run_watched({2, sequence_parallel}, fp64(), [&](const LeafContext& context, GroupWatch& watch) {
    const bool tells = context.coordinate("tp") == 0;
    nn::Parameter* weight = nullptr;
    const auto note = [&](const std::string& what) {
      if (!tells || weight == nullptr) return;
      order += what + (weight->grad_written() ? "(w) " : " ");
    };
    watch.on_start = [&](int, const std::string& what) { note(what); };
    watch.on_wait = [&](int number) { note("wait" + std::to_string(number)); };
    nn::ParameterPlan plan;
    plan.add({"w.weight", lay_out({{"w", 8, kHidden, over_tp(8)}}, context.layout()), 0});
    ColumnLinear leaf(context, plan, "w");
    initialise(leaf, 1);
    bind_gradients(leaf, fp64());
    const Batch meta = batch();
    const PrecisionPolicy policy = fp64();
    WeightGradQueue queue;
    queue.set_postpone(postpone);
    nn::StepContext step{.batch = meta, .policy = policy, .scope = {.queue = &queue}};
    const Tensor y = leaf.forward(input(context), step);
    weight = leaf.parameters()[0];
    ops::run_backward(y, tensor::ones(y.sizes(), DType::Double));
    note("|");
    queue.drain();
  });
  return order;
}

TEST(SplitLinear, TheSumOfInputGradientsRunsBesideTheWeightGradient) {
  EXPECT_EQ(order_of(false, false), "all_reduce wait0(w) |(w) ");
  // Number 0 was forward's gather.
  EXPECT_EQ(order_of(true, false), "all_gather reduce_scatter wait1 wait2(w) |(w) ");
  // Postponed work gathers when it runs: nothing whole is held until then.
  EXPECT_EQ(order_of(true, true), "reduce_scatter wait1 | all_gather wait2 ");
}

TEST(SplitLinear, RebuiltRowsAreGatheredLikeKeptOnes) {
  Gathered kept, rebuilt;
  for (const bool rebuild : {false, true}) {
    run_layout({2, true}, fp64(), [&](const LeafContext& context) {
      tensor::RebuildActivations policy({"RmsNorm", "Activation"});
      TinyLayer layer(context);
      const Batch meta = batch();
      const PrecisionPolicy precision = fp64();
      nn::StepContext step{.batch = meta, .policy = precision};
      if (rebuild) step.scope.saves = &policy;
      const Tensor x = input(context);
      ops::run_backward(layer.loss(x, step), tensor::scalar(0.5, DType::Double));
      EXPECT_EQ(policy.num_rebuilt(), rebuild ? 3 : 0);
      (rebuild ? rebuilt : kept).gradients(layer);
    });
  }
  ASSERT_TRUE(rebuilt.complete());
  for (const auto& [name, t] : kept.tensors()) EXPECT_TRUE(rebuilt.at(name).equal(t)) << name;
}

// Loss and gradients of the layer; `leave_out` >= 0: without the collective of that number. Gives
// how many there were.
int run_layer(bool sequence_parallel, int leave_out, Gathered& out) {
  std::atomic<int> count{0};
  run_watched({2, sequence_parallel}, fp64(), [&](const LeafContext& context, GroupWatch& watch) {
    watch.leave_out = [&](int number) { return number == leave_out; };
    TinyLayer layer(context);
    const Batch meta = batch();
    const PrecisionPolicy policy = fp64();
    nn::StepContext step{.batch = meta, .policy = policy};
    const Tensor x = input(context);
    const Tensor loss = layer.loss(x, step);
    out.put("loss", {1}, {{0}, {1}}, loss.reshape({1}));
    ops::run_backward(loss, tensor::scalar(0.5, DType::Double));
    const LeafContext::Rows rows = context.local_rows(kTokens);
    out.put("dx", {kTokens, kHidden}, {{rows.begin, 0}, {rows.size, kHidden}}, x.grad());
    out.gradients(layer);
    count = watch.count;
  });
  return count;
}

TEST(SplitLinear, NoCollectiveCanBeLeftOut) {
  for (const bool sequence_parallel : {false, true}) {
    Gathered expected;
    const int count = run_layer(sequence_parallel, -1, expected);
    // Forward: two sums and two of the loss; with shared rows three gathers more. Backward: three
    // sums; with shared rows also the gathers of two output gradients and of three inputs.
    EXPECT_EQ(count, sequence_parallel ? 15 : 7);
    for (int number = 0; number < count; ++number) {
      // It may show as other numbers or as copies that disagree.
      double off = 0.0;
      try {
        Gathered found;
        (void)run_layer(sequence_parallel, number, found);
        off = worst_difference(found.tensors(), expected.tensors()).first;
      } catch (const Error&) {
        off = 1.0;
      }
      EXPECT_GT(off, 1e-6) << "collective " << number << " of " << count << ", sequence parallel "
                           << sequence_parallel;
    }
  }
}

// A bias that were added before the sum would count once a rank.
TEST(SplitLinear, ABiasCountsOnce) {
  for (const bool sequence_parallel : {false, true}) {
    run_layout({4, sequence_parallel}, fp64(), [&](const LeafContext& context) {
      const std::vector<PartRule> parts{
          {"w", kHidden, 8, over_tp(4), true, {nn::InitKind::kZeros}}};
      const std::vector<PartRule> biases{{"b", kHidden, 0, {}, false, {nn::InitKind::kOnes}}};
      nn::ParameterPlan plan;
      plan.add({"w.weight", lay_out(parts, context.layout()), 0});
      plan.add({"w.bias", lay_out(biases, context.layout()), 0});
      RowLinear leaf(context, plan, "w");
      initialise(leaf, 1);
      bind_gradients(leaf, fp64());
      const Batch meta = batch();
      const PrecisionPolicy policy = fp64();
      nn::StepContext step{.batch = meta, .policy = policy};
      const Tensor y = leaf.forward(random_tensor({kTokens, 2}, "x"), step);
      EXPECT_TRUE(y.eq(1.0).all().item<bool>());
      ops::run_backward(y, tensor::ones(y.sizes(), DType::Double));
      EXPECT_TRUE(
          leaf.parameters()[1]->main_grad().eq(static_cast<double>(y.size(0))).all().item<bool>());
    });
  }
}

}  // namespace
}  // namespace pentatron::parallel_layers
