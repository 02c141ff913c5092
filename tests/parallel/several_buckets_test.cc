// SPDX-License-Identifier: Apache-2.0
// One bucket of gradients or several: what is summed over the same ranks in the same order has the
// same bits, whatever travels together.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/parallel/sweep_layouts.h"

namespace pentatron::parity {
namespace {

constexpr double kTolerance = 1e-12;
constexpr double kTrainedTolerance = 1e-11;  // see parity_test.cc

void expect_same_bits(const std::map<std::string, Tensor>& one,
                      const std::map<std::string, Tensor>& several, const std::string& what) {
  ASSERT_EQ(one.size(), several.size()) << what;
  for (const auto& [name, values] : one) {
    EXPECT_TRUE(several.contains(name) && values.equal(several.at(name))) << what << " " << name;
  }
}

Layout in_one_bucket(Layout layout) {
  layout.bucket_size = 0;
  return layout;
}

// Gradients that are reduced in every micro-batch leave with the last unit of their bucket. One
// bucket of a rank's two stages waits for the other stage, whose turn comes after further
// micro-batches of this one: these are then summed before the ranks are, not after.
bool sums_in_another_order(const Layout& layout) {
  return layout.strategy == "optim_grads" && layout.chunks > 1;
}

class SeveralBuckets : public ::testing::TestWithParam<NamedLayout> {};

// Gradients have the same bits. Their norm is a sum over pieces, which buckets cut in other places:
// without clipping, which multiplies by it, so have the weights after three steps.
TEST_P(SeveralBuckets, HaveTheBitsOfOne) {
  const Layout layout = GetParam().layout;
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options{.model = model, .clip_grad = 0};
    const Outcome one = run_case(options, in_one_bucket(layout));
    const Outcome several = run_case(options, layout);
    EXPECT_GT(several.num_buckets, 3U) << "there is nothing to test";
    EXPECT_LT(one.num_buckets, several.num_buckets);
    EXPECT_EQ(difference(one, several, kTolerance), "");
    if (sums_in_another_order(layout)) continue;
    EXPECT_EQ(one.first_loss, several.first_loss);
    EXPECT_EQ(one.losses, several.losses);
    expect_same_bits(one.first_gradients, several.first_gradients, "gradient of");
    expect_same_bits(one.first_weights, several.first_weights, "first weight");
    expect_same_bits(one.weights, several.weights, "weight");
  }
}

// Clipped, they are one process within the bound of all layouts, and so are whole matrices that are
// dealt to ranks.
TEST_P(SeveralBuckets, EqualOneProcess) {
  const Layout layout = GetParam().layout;
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const char* optimizer : {"adam", "muon"}) {
      const CaseOptions options{.model = model, .optimizer = optimizer};
      static std::map<std::pair<ModelKind, std::string>, Outcome> alone;
      const std::pair<ModelKind, std::string> key{model, optimizer};
      if (!alone.contains(key)) {
        alone.emplace(key, run_case(options, Layout{.micro_batch_size = 8}));
      }
      const Outcome several = run_case(options, layout);
      EXPECT_EQ(difference(alone.at(key), several, kTolerance, kTrainedTolerance), "") << optimizer;
      EXPECT_GT(several.num_buckets, 3U) << optimizer;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, SeveralBuckets, ::testing::ValuesIn(layouts_of_several_buckets()),
                         [](const auto& info) { return info.param.name; });

// A bucket whose reduction is left out is noticed: the others do not stand for it.
TEST(SeveralBucketsOf, EachIsReduced) {
  using comm::testing_support::Collective;
  using comm::testing_support::Fault;
  const CaseOptions options{.steps = 1};
  const Outcome one = run_case(options, Layout{.micro_batch_size = 8});
  for (const NamedLayout& named : layouts_of_several_buckets()) {
    if (named.layout.world_size() > 2) continue;
    const bool sharded = named.layout.sharded_optimizer || !named.layout.strategy.empty();
    // The largest bucket alone: the position embeddings or a matrix of the feed-forward.
    const Fault fault{.collective = sharded ? Collective::kReduceScatter : Collective::kAllReduce,
                      .group = "dp:",
                      .least_elements = 4096};
    EXPECT_NE(difference(one, run_case(options, named.layout, &fault), kTrainedTolerance), "")
        << named.name;
    const Fault none{.group = "dp:", .least_elements = 1 << 20};
    EXPECT_EQ(difference(one, run_case(options, named.layout, &none), kTrainedTolerance), "")
        << named.name;
  }
}

}  // namespace
}  // namespace pentatron::parity
