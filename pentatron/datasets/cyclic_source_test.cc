// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/cyclic_source.h"

#include <gtest/gtest.h>

#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/datasets/gpt_sample.h"

namespace pentatron::datasets {
namespace {

class Counting final : public SampleSource {
 public:
  [[nodiscard]] std::int64_t num_samples() const override { return 10; }
  [[nodiscard]] std::int64_t length(std::int64_t i) const override { return 1 + i; }
  [[nodiscard]] std::string identity() const override { return "counting"; }
  [[nodiscard]] Sample sample(std::int64_t i) const override {
    return make_gpt_sample(std::vector<std::int64_t>(static_cast<std::size_t>(2 + i), i), -1, {});
  }
};

// torch.manual_seed(0); torch.randperm(10)
const std::vector<std::int64_t> kTorchOfTen = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2};

TEST(CyclicSource, ShufflesAsTorchDoes) {
  const CyclicSource source(std::make_unique<Counting>());
  ASSERT_EQ(source.num_samples(), 10);
  for (std::size_t i = 0; i < 10; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    EXPECT_EQ(source.sample(at).ids("tokens").at(0), kTorchOfTen[i]);
    EXPECT_EQ(source.length(at), 1 + kTorchOfTen[i]);
  }
  EXPECT_NE(source.identity(), Counting().identity());
  EXPECT_THROW((void)source.sample(10), Error);
  EXPECT_THROW((void)source.length(-1), Error);
}

TEST(CyclicSource, PermutationsOfAnySize) {
  EXPECT_EQ(torch_permutation(0, 0).size(), 0);
  EXPECT_EQ(torch_permutation(1, 5)[0], 0);
  const IntegerArray order = torch_permutation(100'000, 7);
  std::vector<int> seen(100'000, 0);
  for (std::int64_t i = 0; i < order.size(); ++i) ++seen[static_cast<std::size_t>(order[i])];
  EXPECT_EQ(seen, std::vector<int>(100'000, 1));
}

}  // namespace
}  // namespace pentatron::datasets
