// SPDX-License-Identifier: Apache-2.0
#include "pentatron/bench/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "pentatron/tensor/ops.h"

namespace pentatron::bench {
namespace {

constexpr KernelShapes kTiny{.tokens = 6,
                             .hidden = 16,
                             .feed_forward = 24,
                             .heads = 4,
                             .groups = 2,
                             .head_dim = 8,
                             .vocabulary = 40,
                             .parameters = 4096,
                             .dtype = DType::Float};

TEST(Kernels, EveryCaseRuns) {
  std::set<std::string> names;
  for (const KernelCase& kernel : kernel_cases(kCpu, kTiny)) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name << " stands there twice";
    EXPECT_GT(kernel.bytes, 0) << kernel.name;
    const std::function<void()> call = kernel.prepare();
    EXPECT_NO_THROW(call()) << kernel.name;
    EXPECT_NO_THROW(call()) << kernel.name << ", again";
  }
}

TEST(Kernels, BytesByHand) {
  const std::vector<KernelCase> cases = kernel_cases(kCpu, kTiny);
  const auto bytes = [&](const std::string& name) {
    const auto found = std::find_if(cases.begin(), cases.end(),
                                    [&](const KernelCase& k) { return k.name == name; });
    return found == cases.end() ? 0.0 : found->bytes;
  };
  EXPECT_EQ(bytes("RMSNorm"), 2 * 6 * 16 * 4);
  EXPECT_EQ(bytes("add + RMSNorm"), 4 * 6 * 16 * 4);
  EXPECT_EQ(bytes("add + LayerNorm gradient"), 4 * 6 * 16 * 4);
  EXPECT_EQ(bytes("SwiGLU gradient"), 5 * 6 * 24 * 4);
  EXPECT_EQ(bytes("RoPE of packed q and k"), 2 * 6 * (4 + 2) * 8 * 4);
  EXPECT_EQ(bytes("cross entropy with gradient"), 2 * 6 * 40 * 4);
  EXPECT_EQ(bytes("sum of squares"), 4096 * 4);
}

}  // namespace
}  // namespace pentatron::bench
