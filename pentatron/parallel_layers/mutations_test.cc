// SPDX-License-Identifier: Apache-2.0
// What ranks must not mix up is mixed up here, by specs and batches that lie: the comparison with
// one process, which the other tests stand on, must notice each.
#include <gtest/gtest.h>

#include <functional>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/parallel_layers/column_linear.h"
#include "pentatron/parallel_layers/core_attention.h"
#include "pentatron/parallel_layers/norm.h"
#include "pentatron/parallel_layers/residual_dropout.h"
#include "pentatron/parallel_layers/test_support.h"

namespace pentatron::parallel_layers {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

constexpr std::int64_t kTokens = 16;
constexpr std::int64_t kHidden = 8;

PrecisionPolicy fp64() { return precision_policy("fp64"); }
Batch batch() { return make_batch({{5, 3}, {8}}, 13); }

nn::Box rows_box(const LeafContext& context) {
  const LeafContext::Rows rows = context.local_rows(kTokens);
  return {{rows.begin, 0}, {rows.size, kHidden}};
}

using Body = std::function<void(const LeafContext&, bool lies, Gathered&)>;

// `body` equals one process where nothing lies, and does not where something does.
void expect_noticed(const Layout& layout, const Body& body) {
  Gathered one;
  run_layout({1, false}, fp64(), [&](const LeafContext& c) { body(c, false, one); });
  for (const bool lies : {false, true}) {
    double off = 0.0;
    try {
      Gathered many;
      run_layout(layout, fp64(), [&](const LeafContext& c) { body(c, lies, many); });
      off = worst_difference(many.tensors(), one.tensors()).first;
    } catch (const Error&) {
      off = 1.0;  // copies that disagree
    }
    if (lies) {
      EXPECT_GT(off, 1e-6);
    } else {
      EXPECT_LE(off, 1e-12);
    }
  }
}

TEST(Mutations, ANormWhoseGradientIsTakenForWhole) {
  expect_noticed({2, true}, [](const LeafContext& context, bool lies, Gathered& out) {
    nn::ShardSpec spec = lay_out({{"n.weight", kHidden}}, context.layout());
    if (lies) spec.parts[0].partial_grad_axes.clear();
    nn::ParameterPlan plan;
    plan.add({"n.weight", spec, 0});
    Norm leaf(context, plan, "n", NormForm{.kind = NormKind::kRmsNorm});
    initialise(leaf, 1);
    bind_gradients(leaf, fp64());
    const Batch meta = batch();
    const PrecisionPolicy policy = fp64();
    nn::StepContext step{.batch = meta, .policy = policy};
    const Tensor x = slice(random_tensor({kTokens, kHidden}, "x"), rows_box(context)).clone();
    const Tensor y = leaf.forward(x, step);
    ops::run_backward(y, slice(random_tensor({kTokens, kHidden}, "dy"), rows_box(context)).clone());
    out.gradients(leaf);
  });
}

// Four ranks, two kv units: a rank that takes the units in turn instead of in blocks.
TEST(Mutations, AKvUnitOfAnotherRank) {
  expect_noticed({4, false}, [](const LeafContext& context, bool lies, Gathered& out) {
    const nn::ShardSpec spec =
        lay_out({{"k.weight", 4, kHidden, copies_over_tp(2)}}, context.layout());
    nn::ShardSpec told = spec;
    if (lies) told.parts[0].box.offset[0] = 2 * (context.coordinate("tp") % 2);
    nn::ParameterPlan plan;
    plan.add({"k.weight", told, 0});
    ColumnLinear leaf(context, plan, "k");
    initialise(leaf, 1);
    const Batch meta = batch();
    const PrecisionPolicy policy = fp64();
    nn::StepContext step{.batch = meta, .policy = policy};
    const tensor::NoGrad no_grad;
    const nn::Box& box = spec.parts[0].box;
    out.put("y", {kTokens, 4}, {{0, box.offset[0]}, {kTokens, box.size[0]}},
            leaf.forward(random_tensor({kTokens, kHidden}, "x"), step));
  });
}

TEST(Mutations, DropoutKeyedByRowsOfAnotherRank) {
  expect_noticed({2, true}, [](const LeafContext& context, bool lies, Gathered& out) {
    ResidualDropout leaf(context, 0.4, "decoder.layers.1.hidden_dropout.1");
    Batch meta = batch();
    if (lies) {
      SequenceRows rows = meta.text().rows();
      for (std::vector<std::int64_t>* ids : {&rows.sample_ids, &rows.token_index}) {
        std::copy_n(ids->begin(), kTokens / 2, ids->begin() + kTokens / 2);
      }
      meta.sequences.insert_or_assign(std::string(Batch::kText), SequenceLayout(std::move(rows)));
    }
    const PrecisionPolicy policy = fp64();
    nn::StepContext step{.batch = meta, .policy = policy, .seed = 8};
    const tensor::NoGrad no_grad;
    const nn::Box box = rows_box(context);
    out.put("y", {kTokens, kHidden}, box,
            leaf.drop(tensor::ones({box.size[0], kHidden}, DType::Double), step));
  });
}

TEST(Mutations, DropoutKeyedByHeadsOfAnotherRank) {
  constexpr std::int64_t kDim = 4, kHeads = 4;
  expect_noticed({2, false}, [](const LeafContext& context, bool lies, Gathered& out) {
    nn::ShardSpec spec = lay_out({{"q.weight", kHeads * kDim, 1, over_tp(kHeads)},
                                  {"k.weight", kHeads * kDim, 1, over_tp(kHeads)},
                                  {"v.weight", kHeads * kDim, 1, over_tp(kHeads)}},
                                 context.layout());
    const nn::Box mine = spec.parts[0].box;
    if (lies) spec.parts[0].box.offset[0] = 0;
    nn::ParameterPlan plan;
    plan.add({"q.weight", spec, 0});
    const ColumnLinear qkv(context, plan, "q");
    CoreAttention leaf(context, nn::ParameterPlan(), "core", qkv,
                       {.head_dim = kDim, .dropout = 0.3, .site = "site", .cache_layer = 0});
    const Batch meta = batch();
    const PrecisionPolicy policy = fp64();
    nn::StepContext step{.batch = meta, .policy = policy, .seed = 3};
    const tensor::NoGrad no_grad;
    const nn::Box box{{0, mine.offset[0] / kDim, 0}, {kTokens, mine.size[0] / kDim, kDim}};
    const auto heads = [&](const char* name) {
      return slice(random_tensor({kTokens, kHeads, kDim}, name), box);
    };
    out.put("y", {kTokens, kHeads * kDim}, {{0, mine.offset[0]}, {kTokens, mine.size[0]}},
            leaf.forward(heads("q"), heads("k"), heads("v"), step));
  });
}

}  // namespace
}  // namespace pentatron::parallel_layers
