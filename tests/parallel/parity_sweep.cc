// SPDX-License-Identifier: Apache-2.0
// Layouts generated from the axes, every one that fits eight ranks. Prints ran / refused by rule /
// total.
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "tests/parallel/parity_case.h"

namespace pentatron::parity {
namespace {

constexpr double kTolerance = 1e-11;
constexpr std::int64_t kMaxRanks = 8;

std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts;
  for (const std::int64_t tp : {1, 2, 4})
    for (const bool sp : {false, true})
      for (const std::int64_t pp : {1, 2, 4})
        for (const std::int64_t dp : {1, 2, 4})
          for (const bool sharded : {false, true})
            for (const std::int64_t mbs : {1, 2})
              for (const char* schedule : {"1f1b", "zb-h1", "zb-auto", "gpipe"}) {
                if (tp * pp * dp > kMaxRanks) continue;
                const bool plain = std::string_view(schedule) == "1f1b";
                // One rank has one order; all four schedules stand beside dp and sharding, two of
                // them beside every axis.
                if (pp == 1 && !plain) continue;
                const bool chosen = tp == 1 && mbs == 1;
                if (!plain && std::string_view(schedule) != "zb-h1" && !chosen) continue;
                layouts.push_back({tp, sp, pp, dp, sharded, mbs, schedule});
                if (pp != 2 || !plain) continue;
                layouts.back().chunks = 2;
                layouts.push_back({tp, sp, pp, dp, sharded, mbs, schedule});
                layouts.back().recompute = "uniform 1";
                layouts.push_back({tp, sp, pp, dp, sharded, mbs, schedule});
              }
  // Context parallelism with each of them that leaves it ranks.
  const std::vector<Layout> others = layouts;
  for (const std::int64_t cp : {2, 4}) {
    for (Layout layout : others) {
      layout.cp = cp;
      if (layout.world_size() <= kMaxRanks) layouts.push_back(layout);
    }
  }
  return layouts;
}

void sweep(const CaseOptions& options, const char* name) {
  const Outcome reference = run_case(options, Layout{.micro_batch_size = 8});
  int ran = 0;
  int refused = 0;
  const std::vector<Layout> layouts = all_layouts();
  for (const Layout& layout : layouts) {
    if (!layout.refused().empty()) {
      ++refused;
      continue;
    }
    ++ran;
    EXPECT_EQ(difference(reference, run_case(options, layout), kTolerance), "") << layout.name();
  }
  std::printf("%s: ran %d, refused by rule %d, total %zu\n", name, ran, refused, layouts.size());
  EXPECT_GT(ran, refused);
}

TEST(Sweep, Gpt2) { sweep({.model = ModelKind::kGpt2, .steps = 2}, "GPT-2 kind"); }
TEST(Sweep, Llama) { sweep({.model = ModelKind::kLlama, .steps = 2}, "Llama kind"); }

}  // namespace
}  // namespace pentatron::parity
