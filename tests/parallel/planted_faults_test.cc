// SPDX-License-Identifier: Apache-2.0
// Load-bearing lines are broken one at a time; the comparison with one process must notice each.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <variant>

#include "pentatron/datasets/sample_source.h"
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

using comm::testing_support::Collective;
using comm::testing_support::Fault;
using comm::testing_support::Harm;

struct Planted {
  const char* what;
  Layout layout;
  Fault fault;
};

void expect_caught(const CaseOptions& options, const std::vector<Planted>& planted) {
  const Outcome reference = run_case(options, Layout{.micro_batch_size = 8});
  for (const Planted& one : planted) {
    EXPECT_EQ(difference(reference, run_case(options, one.layout), 1e-11), "")
        << one.what << ": the layout without fault";
    EXPECT_NE(difference(reference, run_case(options, one.layout, &one.fault), 1e-11), "")
        << one.what << " is not noticed in " << one.layout.name();
  }
}

// Faults that trainers of this kind have had: what is summed over tensor-parallel ranks, in which
// order parts stand, whose shard a rank updates, which message belongs to which stage.
TEST(FaultyCollectives, TensorParallelOnesAreCaught) {
  const CaseOptions llama{.model = ModelKind::kLlama, .steps = 2};
  const Layout tp{.tp = 2};
  const Layout sp{.tp = 2, .sequence_parallel = true};
  const Layout copied{.tp = 4};  // each of two key and value heads on two ranks
  expect_caught(
      llama,
      {{"outputs of row-parallel layers are not summed", tp, {Collective::kAllReduce, "/tp:"}},
       {"the loss's largest logit is the rank's own",
        tp,
        {Collective::kAllReduce, "/tp:", Harm::kLeaveOut, 2, comm::ReduceOp::kMax}},
       // Those of the loss have as many elements as a micro-batch has tokens, 16.
       {"gradients of replicated norms are partial sums under sequence parallelism",
        sp,
        {Collective::kAllReduce, "/tp:", Harm::kLeaveOut, 100}},
       {"sequence-parallel rows are gathered in the wrong order",
        sp,
        {Collective::kAllGather, "/tp:", Harm::kReverse}},
       {"sequence-parallel outputs are not summed", sp, {Collective::kReduceScatter, "/tp:"}},
       {"gradients of copied key and value heads are not summed",
        copied,
        {Collective::kAllReduce, "/tp%2:"}}});
}

TEST(FaultyCollectives, ShardsAndStagesOutOfOrderAreCaught) {
  const CaseOptions gpt2{.model = ModelKind::kGpt2, .steps = 2};
  const Layout sharded{.dp = 2, .sharded_optimizer = true};
  expect_caught(gpt2, {{"a rank updates its neighbour's shard",
                        sharded,
                        {Collective::kReduceScatter, "dp:", Harm::kShift}},
                       {"updated shards are gathered in the wrong order",
                        {.dp = 2, .sharded_optimizer = true, .overlap_gather = true},
                        {Collective::kAllGather, "dp:", Harm::kReverse}},
                       {"copies of the sharded optimizer do not share gradients",
                        {.dp = 4, .sharded_optimizer = true, .instances = 2},
                        {Collective::kAllReduce, "dp_outer"}},
                       {"virtual stages get each other's messages",
                        {.pp = 2, .chunks = 2},
                        {Collective::kReceive, "/pp:", Harm::kStale}},
                       {"gradients of virtual stages go to each other",
                        {.pp = 2, .chunks = 2},
                        {Collective::kReceive, "/pp:0#2", Harm::kStale}},
                       {"context-parallel heads come back in the wrong order",
                        {.cp = 2, .cp_comm = "a2a"},
                        {Collective::kAllToAll, "/cp:", Harm::kReverse}},
                       {"a ring hands on the block before",
                        {.cp = 4, .cp_comm = "p2p"},
                        {Collective::kReceive, "/cp:", Harm::kStale}}});
}

// What one rank reads otherwise than the others.
TEST(FaultyData, EachIsCaught) {
  using comm::ParallelContext;
  using datasets::Sample;
  using datasets::SampleSource;
  struct Read {
    const char* what;
    Layout layout;
    decltype(CaseOptions::read) read;
  };
  const auto text_of = [](Sample& sample) -> datasets::SampleSequence& {
    return sample.sequences.find(Sample::kText)->second;
  };
  const auto on = [](const char* axis, const std::function<void(Sample&)>& change) {
    return [=](const SampleSource& source, std::int64_t i, const ParallelContext& rank) {
      Sample sample = source.sample(i);
      if (rank.coordinate(axis) == 1) change(sample);
      return sample;
    };
  };
  const std::vector<Read> faults = {
      {"rotary positions begin anew on the second context-parallel rank",
       {.cp = 2},
       on("cp",
          [=](Sample& sample) {
            for (auto& position : text_of(sample).positions) {
              position = std::max<std::int64_t>(0, position - 4);
            }
          })},
      {"documents are unknown to the second pipeline stage",
       {.pp = 2},
       on("pp",
          [=](Sample& sample) {
            auto& runs = text_of(sample).runs;
            runs = {runs.at(0) + runs.at(1)};
          })},
      {"a context-parallel rank counts a document's last token",
       {.cp = 2},
       on("cp",
          [](Sample& sample) {
            auto& mask = std::get<std::vector<float>>(sample.fields.find("loss_mask")->second);
            std::fill(mask.begin(), mask.end(), 1.0F);
          })},
      {"a data-parallel rank reads another's sample",
       {.dp = 2},
       [](const SampleSource& source, std::int64_t i, const ParallelContext& rank) {
         return source.sample(rank.coordinate("dp") == 1 ? i - 1 : i);
       }}};
  const CaseOptions llama{.model = ModelKind::kLlama, .steps = 1};
  const Outcome reference = run_case(llama, Layout{.micro_batch_size = 8});
  for (const Read& fault : faults) {
    CaseOptions faulty = llama;
    faulty.read = fault.read;
    EXPECT_EQ(difference(reference, run_case(llama, fault.layout), 1e-11), "") << fault.what;
    EXPECT_NE(difference(reference, run_case(faulty, fault.layout), 1e-11), "")
        << fault.what << " is not noticed";
  }
}

}  // namespace
}  // namespace pentatron::parity
