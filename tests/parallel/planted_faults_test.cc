// SPDX-License-Identifier: Apache-2.0
// Load-bearing lines are broken one at a time; the comparison with one process must notice each.
#include <gtest/gtest.h>

#include "pentatron/base/fault.h"
#include "tests/parallel/parity_case.h"

namespace pentatron::parity {
namespace {

struct Fault {
  const char* name;
  Layout layout;
  CaseOptions options;
};

std::vector<Fault> faults() {
  const CaseOptions gpt2{.model = ModelKind::kGpt2, .steps = 2};
  const CaseOptions llama{.model = ModelKind::kLlama, .num_query_groups = 1, .steps = 2};
  const Layout tp{.tp = 2};
  const Layout sp{.tp = 2, .sequence_parallel = true};
  const Layout pp{.pp = 2};
  const Layout dp{.dp = 2};
  const Layout sharded{.dp = 2, .sharded_optimizer = true};
  return {{"skip_partial_grad_reduce", sp, gpt2}, {"skip_partial_grad_reduce", tp, llama},
          {"skip_tied_reduce", pp, gpt2},         {"skip_dp_reduce", dp, gpt2},
          {"skip_dp_reduce", sharded, gpt2},      {"wrong_dp_divisor", dp, gpt2},
          {"local_valid_count", dp, gpt2},        {"norm_counts_replicas", tp, gpt2},
          {"skip_param_gather", sharded, gpt2}};
}

TEST(PlantedFaults, EachIsCaught) {
  std::map<std::int64_t, Outcome> references;  // by query groups, 0 for the GPT-2 kind
  for (const Fault& fault : faults()) {
    const bool is_gpt2 = fault.options.model == ModelKind::kGpt2;
    const std::int64_t key = is_gpt2 ? 0 : fault.options.num_query_groups;
    if (!references.contains(key)) {
      references[key] = run_case(fault.options, Layout{.micro_batch_size = 8});
    }
    const Outcome& reference = references[key];
    constexpr double kTolerance = 1e-11;
    ASSERT_EQ(difference(reference, run_case(fault.options, fault.layout), kTolerance), "")
        << "without a fault, " << fault.layout.name();
    set_planted_fault(fault.name);
    const std::string found =
        difference(reference, run_case(fault.options, fault.layout), kTolerance);
    set_planted_fault("");
    EXPECT_NE(found, "") << fault.name << " went unnoticed in " << fault.layout.name();
    std::printf("%-26s %-28s %s\n", fault.name, fault.layout.name().c_str(), found.c_str());
  }
}

}  // namespace
}  // namespace pentatron::parity
