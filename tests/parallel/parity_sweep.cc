// SPDX-License-Identifier: Apache-2.0
// One loss over layouts generated from the axes, up to eight ranks on threads, each a test of its
// own name: all pairs and chosen triples with the two kinds of models that differ most, and for
// every other dense kind each axis alone and its share of the pairs. Packed documents, uneven
// masks, three steps. Prints ran, refused by rule, total.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "tests/parallel/sweep_layouts.h"

namespace pentatron::parity {
namespace {

constexpr double kTolerance = 1e-12;
constexpr double kTrainedTolerance = 1e-11;  // see parity_test.cc

struct SweepCase {
  std::string name;
  std::string kind;
  CaseOptions options;
  Layout layout;
};

struct SweepCases {
  std::vector<SweepCase> run;
  std::map<std::string, int> refused;  // by rule
  int total = 0;

  void add(const NamedKind& kind, const NamedLayout& named) {
    ++total;
    const std::string rule = refusal_of(kind.options, named.layout);
    if (!rule.empty()) {
      ++refused[rule];
      return;
    }
    run.push_back({kind.name + "_" + named.name, kind.name, kind.options, named.layout});
  }
};

const SweepCases& sweep_cases() {
  static const SweepCases kCases = [] {
    SweepCases cases;
    const std::vector<NamedKind> kinds = dense_kinds();
    const std::vector<NamedLayout> pairs = pair_layouts();
    constexpr std::size_t kWhole = 2;  // GPT-2 and Llama
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      const bool whole = kind < kWhole;
      for (const NamedLayout& layout : single_layouts()) cases.add(kinds[kind], layout);
      for (std::size_t pair = 0; pair < pairs.size(); ++pair) {
        const bool own = pair % (kinds.size() - kWhole) + kWhole == kind;
        if (whole || own) cases.add(kinds[kind], pairs[pair]);
      }
      if (!whole) continue;
      for (const NamedLayout& layout : triple_layouts()) cases.add(kinds[kind], layout);
    }
    return cases;
  }();
  return kCases;
}

const Outcome& reference_of(const SweepCase& c) {
  static std::map<std::string, Outcome> cache;
  auto found = cache.find(c.kind);
  if (found == cache.end()) {
    found = cache.emplace(c.kind, run_case(c.options, Layout{.micro_batch_size = 8})).first;
  }
  return found->second;
}

class Sweep : public ::testing::TestWithParam<SweepCase> {};

TEST_P(Sweep, EqualsOneProcess) {
  const SweepCase& c = GetParam();
  const Outcome outcome = run_case(c.options, c.layout);
  EXPECT_EQ(difference(reference_of(c), outcome, kTolerance, kTrainedTolerance), "")
      << c.layout.name();
  EXPECT_GE(outcome.num_buckets, least_buckets(c.layout)) << c.layout.name();
}

INSTANTIATE_TEST_SUITE_P(Layouts, Sweep, ::testing::ValuesIn(sweep_cases().run),
                         [](const auto& info) { return info.param.name; });

// A combination that Megatron-LM runs is not refused: every rule that refused one is known.
TEST(SweepReport, RanRefusedTotal) {
  const SweepCases& cases = sweep_cases();
  int refused = 0;
  for (const auto& [rule, count] : cases.refused) {
    std::printf("refused %4d: %s\n", count, rule.c_str());
    refused += count;
    bool known = false;
    for (const char* part :
         {"takes more than 8 ranks", "global batch does not divide", "rows do not divide",
          "micro-batches do not fill virtual stages", "zero bubble runs one stage a rank",
          "--cp-comm-type a2a", "--distribute-saved-activations with --sequence-parallel",
          "share one table of biases",
          // Eight stages of four layers.
          "1 layers of a pipeline rank does not divide by its number of virtual stages"}) {
      known = known || rule.find(part) != std::string::npos;
    }
    EXPECT_TRUE(known) << rule;
  }
  const int ran = static_cast<int>(cases.run.size());
  std::printf("ran %d, refused by rule %d, total %d\n", ran, refused, cases.total);
  EXPECT_EQ(ran + refused, cases.total);
  EXPECT_GT(ran, 4 * refused);
}

}  // namespace
}  // namespace pentatron::parity
