// SPDX-License-Identifier: Apache-2.0
// Every leaf on 2 and 4 ranks, with and without sequence parallelism, against one process: outputs,
// input and weight gradients in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/parallel_layers/column_linear.h"
#include "pentatron/parallel_layers/core_attention.h"
#include "pentatron/parallel_layers/norm.h"
#include "pentatron/parallel_layers/position_embedding.h"
#include "pentatron/parallel_layers/regions.h"
#include "pentatron/parallel_layers/residual_dropout.h"
#include "pentatron/parallel_layers/row_linear.h"
#include "pentatron/parallel_layers/test_support.h"
#include "pentatron/parallel_layers/vocab_embedding.h"
#include "pentatron/tensor/views.h"

namespace pentatron::parallel_layers {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

constexpr std::int64_t kTokens = 16;
constexpr std::int64_t kHidden = 6;
constexpr double kBound = 1e-12;

PrecisionPolicy fp64() { return precision_policy("fp64"); }
Batch batch() { return make_batch({{5, 3}, {8}}, 13); }

Tensor leaf_input(const Tensor& t) { return t.clone().set_requires_grad(true); }

nn::Box rows_box(const LeafContext& context, std::int64_t columns) {
  const LeafContext::Rows rows = context.local_rows(kTokens);
  return {{rows.begin, 0}, {rows.size, columns}};
}

using Body = std::function<void(const LeafContext&, Gathered&)>;

void expect_same_on_all_layouts(const Body& body) {
  const PrecisionPolicy policy = fp64();
  Gathered one;
  run_layout({1, false}, policy, [&](const LeafContext& c) { body(c, one); });
  ASSERT_TRUE(one.complete());
  for (const auto& [name, t] : one.tensors()) {
    EXPECT_GT(t.abs().max().item<double>(), 0.0) << name << " is empty of information";
  }
  for (const std::int64_t size : {2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      Gathered many;
      run_layout({size, sequence_parallel}, policy, [&](const LeafContext& c) { body(c, many); });
      EXPECT_TRUE(many.complete());
      const auto [off, name] = worst_difference(many.tensors(), one.tensors());
      EXPECT_LE(off, kBound) << name << " on " << size << " ranks, sequence parallel "
                             << sequence_parallel;
    }
  }
}

// One parameter "w.weight" (and "w.bias") of the given parts.
nn::ParameterPlan plan_of(const LeafContext& context, std::vector<PartRule> parts, bool bias) {
  nn::ParameterPlan plan;
  std::vector<PartRule> biases = parts;
  for (PartRule& rule : parts) rule.name = "w." + rule.name + ".weight";
  for (PartRule& rule : biases) {
    rule.name = "w." + rule.name + ".bias";
    rule.columns = 0;
    if (std::exchange(rule.cut_columns, false)) rule.cut = {};
  }
  plan.add({"w.weight", lay_out(parts, context.layout()), 2});
  if (bias) plan.add({"w.bias", lay_out(biases, context.layout()), 2});
  return plan;
}

PartRule padded_rows(std::string name, std::int64_t rows, std::int64_t columns,
                     std::int64_t padded) {
  return {.name = std::move(name),
          .rows = rows,
          .columns = columns,
          .cut = over_tp(padded),
          .padded_rows = padded};
}

template <typename M>
void prepare(M& module) {
  initialise(module, 5);
  bind_gradients(module, fp64());
}

void column_linear(const LeafContext& context, Gathered& out) {
  const std::int64_t kv = 4;  // two kv heads of two channels: copies on four ranks
  const auto plan = plan_of(context,
                            {{"q", 8, kHidden, over_tp(4)},
                             {"k", kv, kHidden, copies_over_tp(2)},
                             {"v", kv, kHidden, copies_over_tp(2)}},
                            true);
  ColumnLinear leaf(context, plan, "w");
  prepare(leaf);
  const Batch meta = batch();
  const PrecisionPolicy policy = fp64();
  nn::StepContext step{.batch = meta, .policy = policy};
  const Tensor x =
      leaf_input(slice(random_tensor({kTokens, kHidden}, "x"), rows_box(context, kHidden)));
  const std::vector<Tensor> parts = leaf.forward_heads(x, 2, step);
  Tensor sum;
  const std::vector<std::int64_t> widths{8, kv, kv};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = "y" + std::to_string(i);
    const nn::Box box{{0, leaf.part_begin(i)}, {kTokens, leaf.part_width(i)}};
    const Tensor part = parts[i].reshape({kTokens, leaf.part_width(i)});
    out.put(name, {kTokens, widths[i]}, box, part);
    // Copies of k and v get unequal shares of the gradient, as different query heads give them.
    const auto copies = static_cast<double>(std::max<std::int64_t>(context.size("tp") / 2, 1));
    const auto copy = static_cast<double>(plan.at("w.weight").spec.parts[1].replica);
    const double share = i == 0 ? 1.0 : 2.0 * (copy + 1.0) / (copies * (copies + 1.0));
    const Tensor weighted =
        part.mul(slice(random_tensor({kTokens, widths[i]}, name), box)).sum().mul(share);
    sum = sum.defined() ? sum.add(weighted) : weighted;
  }
  ops::run_backward(sum, tensor::scalar(1.0, DType::Double));
  out.put("dx", {kTokens, kHidden}, rows_box(context, kHidden), x.grad());
  out.gradients(leaf);
}

TEST(Leaves, ColumnLinear) { expect_same_on_all_layouts(column_linear); }

TEST(Leaves, RowLinear) {
  expect_same_on_all_layouts([](const LeafContext& context, Gathered& out) {
    const auto plan = plan_of(context, {{"r", kHidden, 8, over_tp(8), true}}, true);
    RowLinear leaf(context, plan, "w");
    prepare(leaf);
    const Batch meta = batch();
    const PrecisionPolicy policy = fp64();
    nn::StepContext step{.batch = meta, .policy = policy};
    const std::int64_t columns = 8 / context.size("tp");
    const nn::Box in{{0, context.coordinate("tp") * columns}, {kTokens, columns}};
    const Tensor x = leaf_input(slice(random_tensor({kTokens, 8}, "x"), in));
    const Tensor y = leaf.forward(x, step);
    const nn::Box box = rows_box(context, kHidden);
    out.put("y", {kTokens, kHidden}, box, y);
    ops::run_backward(y, slice(random_tensor({kTokens, kHidden}, "dy"), box).contiguous());
    out.put("dx", {kTokens, 8}, in, x.grad());
    out.gradients(leaf);
  });
}

TEST(Leaves, Embeddings) {
  expect_same_on_all_layouts([](const LeafContext& context, Gathered& out) {
    const auto words = plan_of(context, {padded_rows("e", 13, kHidden, 32)}, false);
    const auto places = plan_of(context, {{"p", 8, kHidden}}, false);
    VocabEmbedding word_leaf(context, words, "w");
    PositionEmbedding place_leaf(context, places, "w");
    prepare(word_leaf);
    prepare(place_leaf);
    const Batch meta = batch();
    const PrecisionPolicy policy = fp64();
    nn::StepContext step{.batch = meta, .policy = policy};
    const Tensor y = word_leaf.forward(step).add(place_leaf.forward(step));
    const nn::Box box = rows_box(context, kHidden);
    out.put("y", {kTokens, kHidden}, box, y);
    ops::run_backward(y, slice(random_tensor({kTokens, kHidden}, "dy"), box).contiguous());
    out.gradients(word_leaf);
    out.gradients(place_leaf);
  });
}

TEST(Leaves, EmbeddingsRefuseWhatDoesNotFit) {
  const PrecisionPolicy policy = fp64();
  run_layout({1, false}, policy, [&](const LeafContext& context) {
    VocabEmbedding words(context, plan_of(context, {padded_rows("e", 9, 2, 16)}, false), "w");
    PositionEmbedding places(context, plan_of(context, {{"p", 7, 2}}, false), "w");
    const Batch meta = batch();  // ids up to 12, positions up to 7
    nn::StepContext step{.batch = meta, .policy = policy};
    EXPECT_THROW(static_cast<void>(words.forward(step)), Error);
    EXPECT_THROW(static_cast<void>(places.forward(step)), Error);
  });
}

TEST(Leaves, Norms) {
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    expect_same_on_all_layouts([kind](const LeafContext& context, Gathered& out) {
      const bool bias = kind == NormKind::kLayerNorm;
      Norm leaf(context, plan_of(context, {{"n", kHidden}}, bias), "w", NormForm{.kind = kind});
      prepare(leaf);
      const Batch meta = batch();
      const PrecisionPolicy policy = fp64();
      nn::StepContext step{.batch = meta, .policy = policy};
      const nn::Box box = rows_box(context, kHidden);
      const Tensor x = leaf_input(slice(random_tensor({kTokens, kHidden}, "x"), box));
      const Tensor y = leaf.forward(x, step);
      out.put("y", {kTokens, kHidden}, box, y);
      ops::run_backward(y, slice(random_tensor({kTokens, kHidden}, "dy"), box).contiguous());
      out.put("dx", {kTokens, kHidden}, box, x.grad());
      out.gradients(leaf);
    });
  }
}

TEST(Leaves, ResidualDropoutDropsTheSameElementsInEveryLayout) {
  expect_same_on_all_layouts([](const LeafContext& context, Gathered& out) {
    ResidualDropout leaf(context, 0.4, "decoder.layers.1.hidden_dropout.1");
    const Batch meta = batch();
    const PrecisionPolicy policy = fp64();
    nn::StepContext step{.batch = meta, .policy = policy, .seed = 8};
    const nn::Box box = rows_box(context, kHidden);
    const Tensor x = leaf_input(tensor::ones({box.size[0], kHidden}, DType::Double));
    const Tensor residual = leaf_input(slice(random_tensor({kTokens, kHidden}, "r"), box));
    const Tensor dropped = leaf.drop(x, step).detach();
    const double zeros = dropped.eq(0.0).sum().item<double>();
    EXPECT_GT(zeros, 0.0);
    EXPECT_LT(zeros, static_cast<double>(dropped.numel()));
    const Tensor y = leaf.forward(x, residual, step);
    out.put("dropped", {kTokens, kHidden}, box, dropped);
    out.put("y", {kTokens, kHidden}, box, y);
    ops::run_backward(y, slice(random_tensor({kTokens, kHidden}, "dy"), box).contiguous());
    out.put("dx", {kTokens, kHidden}, box, x.grad());
    out.put("dr", {kTokens, kHidden}, box, residual.grad());
    nn::StepContext evaluation{.batch = meta, .policy = policy, .phase = nn::Phase::kEvaluate};
    EXPECT_TRUE(leaf.drop(x, evaluation).equal(x));
  });
}

TEST(Leaves, CoreAttentionWithDropoutAndSharedKvHeads) {
  constexpr std::int64_t kDim = 4;
  constexpr std::int64_t kQueryHeads = 8;
  expect_same_on_all_layouts([](const LeafContext& context, Gathered& out) {
    const std::int64_t kv_heads = 2;
    const auto plan = plan_of(context,
                              {{"q", kQueryHeads * kDim, 1, over_tp(kQueryHeads)},
                               {"k", kv_heads * kDim, 1, copies_over_tp(kv_heads)},
                               {"v", kv_heads * kDim, 1, copies_over_tp(kv_heads)}},
                              false);
    const ColumnLinear qkv(context, plan, "w");
    CoreAttention leaf(context, nn::ParameterPlan(), "core", qkv,
                       {.head_dim = kDim, .dropout = 0.3, .site = "site", .cache_layer = 0});
    const Batch meta = batch();
    const PrecisionPolicy policy = fp64();
    nn::StepContext step{.batch = meta, .policy = policy, .seed = 3};
    std::vector<Tensor> inputs;
    std::vector<nn::Box> boxes;
    const std::vector<std::int64_t> heads{kQueryHeads, kv_heads, kv_heads};
    for (std::size_t i = 0; i < 3; ++i) {
      boxes.push_back(
          {{0, qkv.part_begin(i) / kDim, 0}, {kTokens, qkv.part_width(i) / kDim, kDim}});
      inputs.push_back(leaf_input(
          slice(random_tensor({kTokens, heads[i], kDim}, "in" + std::to_string(i)), boxes[i])));
    }
    const Tensor y = leaf.forward(inputs[0], inputs[1], inputs[2], step);
    const nn::Box box{{0, qkv.part_begin(0)}, {kTokens, qkv.part_width(0)}};
    out.put("y", {kTokens, kQueryHeads * kDim}, box, y);
    ops::run_backward(y,
                      slice(random_tensor({kTokens, kQueryHeads * kDim}, "dy"), box).contiguous());
    out.put("dq", {kTokens, kQueryHeads, kDim}, boxes[0], inputs[0].grad());
    out.add("dk", {kTokens, kv_heads, kDim}, boxes[1], inputs[1].grad());
    out.add("dv", {kTokens, kv_heads, kDim}, boxes[2], inputs[2].grad());
  });
}

TEST(Regions, TokensThatCannotBeSharedAreAConfigError) {
  EXPECT_THROW(
      run_layout({2, true}, fp64(),
                 [](const LeafContext& context) { static_cast<void>(context.local_rows(7)); }),
      Error);
}

// Gradients side by side in one matrix are that matrix; any others are joined by a copy.
TEST(Regions, SplitColumnsJoinsGradientsWhereverTheyLie) {
  const Tensor joined = random_tensor({3, 10}, "joined");
  const Tensor wider = random_tensor({3, 14}, "wider");
  const auto gradient_of = [](const std::vector<Tensor>& grads) {
    const Tensor x = leaf_input(random_tensor({3, 10}, "x"));
    const std::vector<Tensor> parts = split_columns(x, {4, 6}, 2);
    ops::GradientEdge first(parts[0]), second(parts[1]);
    ops::run_backward({&first, &second}, grads);
    return x.grad();
  };
  const auto side = [](const Tensor& t, std::int64_t begin, std::int64_t width) {
    return tensor::split_last(t.narrow(1, begin, width), 2);
  };
  EXPECT_TRUE(gradient_of({side(joined, 0, 4), side(joined, 4, 6)}).equal(joined));
  EXPECT_TRUE(gradient_of({side(joined, 6, 4), side(joined, 0, 6)})
                  .equal(tensor::cat({joined.narrow(1, 6, 4), joined.narrow(1, 0, 6)}, 1)));
  EXPECT_TRUE(gradient_of({side(wider, 2, 4), side(wider, 6, 6)}).equal(wider.narrow(1, 2, 10)));
  EXPECT_TRUE(gradient_of({side(joined, 0, 4).clone(), side(joined, 4, 6)}).equal(joined));
}

TEST(Regions, SplitColumnsTakesMissingGradientsAsZero) {
  const Tensor x = leaf_input(random_tensor({3, 10}, "x"));
  const std::vector<Tensor> parts = split_columns(x, {4, 6}, 2);
  EXPECT_TRUE(parts[1].equal(x.narrow(1, 4, 6).reshape({3, 3, 2})));
  ops::run_backward(parts[0].sum(), tensor::scalar(1.0, DType::Double));
  EXPECT_EQ(x.grad().sum().item<double>(), 12.0);
  EXPECT_EQ(x.grad().narrow(1, 4, 6).abs().max().item<double>(), 0.0);
  EXPECT_THROW(static_cast<void>(split_columns(x, {4, 4}, 2)), Error);
  EXPECT_THROW(static_cast<void>(split_columns(x, {3, 7}, 2)), Error);
}

}  // namespace
}  // namespace pentatron::parallel_layers
