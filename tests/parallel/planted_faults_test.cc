// SPDX-License-Identifier: Apache-2.0
// Load-bearing lines are broken one at a time; the comparison with one process must notice each.
#include <gtest/gtest.h>

#include "tests/parallel/parity_case.h"

namespace pentatron::parity {
namespace {

// The collectives of reduction and gather, left out or wrong.
TEST(FaultyCollectives, EachIsCaught) {
  using comm::testing_support::Collective;
  using comm::testing_support::Fault;
  using comm::testing_support::Harm;
  const CaseOptions gpt2{.model = ModelKind::kGpt2, .steps = 2};
  const Layout dp{.dp = 2};
  const Layout sharded{.dp = 2, .sharded_optimizer = true};
  const Layout gradients{.dp = 2, .strategy = "optim_grads"};
  const Layout parameters{.dp = 2, .strategy = "optim_grads_params"};
  const Layout context{.cp = 2, .cp_comm = "all_gather"};
  const Layout ring{.cp = 2, .cp_comm = "p2p"};
  const Layout heads{.cp = 2, .cp_comm = "a2a"};
  const Layout two_levels{.cp = 4, .cp_comm = "a2a+p2p", .cp_inner = 2};
  const Fault reduce{Collective::kAllReduce, "dp:"};
  const Fault scatter{Collective::kReduceScatter, "dp:"};
  const Fault gather{Collective::kAllGather, "dp:"};
  const std::vector<std::pair<Layout, Fault>> faults = {
      {dp, reduce},
      {dp, {Collective::kAllReduce, "dp:", Harm::kDivide}},
      // Counts of valid tokens too.
      {dp, {Collective::kAllReduce, "dp:", Harm::kLeaveOut, 1}},
      {sharded, scatter},
      {sharded, {Collective::kReduceScatter, "dp:", Harm::kDivide}},
      {sharded, gather},
      {gradients, scatter},
      {gradients, gather},
      {parameters, scatter},
      {parameters, gather},
      {{.pp = 2}, {Collective::kAllReduce, "/tie-pp:"}},
      // Gradients that are not summed over the ranks of a sample; keys; gradients of keys.
      {context, reduce},
      {context, {Collective::kAllReduce, "dp:", Harm::kDivide}},
      {context, {Collective::kAllGather, "/cp:"}},
      {context, {Collective::kReduceScatter, "/cp:"}},
      {ring, reduce},
      {ring, {Collective::kReceive, "/cp:"}},
      {heads, {Collective::kAllToAll, "/cp:"}},
      {two_levels, {Collective::kAllToAll, "/cp_inner:"}},
      {two_levels, {Collective::kReceive, "/cp_outer:"}},
      // The norm of the sharded gradients, and the sums of the ledger.
      {sharded, {Collective::kAllReduce, "/world", Harm::kLeaveOut, 1}}};
  const Outcome reference = run_case(gpt2, Layout{.micro_batch_size = 8});
  for (const auto& [layout, fault] : faults) {
    EXPECT_NE(difference(reference, run_case(gpt2, layout, &fault), 1e-11), "")
        << fault.group << " in " << layout.name();
  }
  const Fault none{Collective::kAllReduce, "no such group"};
  EXPECT_EQ(difference(reference, run_case(gpt2, parameters, &none), 1e-11), "");
}

}  // namespace
}  // namespace pentatron::parity
