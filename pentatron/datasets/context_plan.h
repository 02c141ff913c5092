// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// Dynamic context parallelism as data: which samples of a step are shared by how many ranks
// (--hybrid-context-parallel). The dp x cp ranks of a stage are one pool; a micro-batch belongs to
// an aligned block of 1, 2, 4, ... neighbours of it, who share the tokens of each of its samples.
//
//   pool rank   0   1   2   3   4   5   6   7
//   first       [----- one long sample -----]
//   then        [ longer ]  [ longer ]  [  packed short ones  ]
//   last        [s] [s] [s] [s] [s] [s] [s] [s]
//
// Pure functions of lengths and numbers.
namespace pentatron::datasets {

// What a sample of n tokens costs each of g ranks, in units of one token's work outside attention:
// n / g + attention x n^2 / g + exchange x n x (g - 1) / g.
struct ContextCosts {
  double attention = 0;    // of causal attention, a token squared
  double exchange = 0.1;   // of a token whose keys and values come from another rank
  double micro_batch = 0;  // of each micro-batch, whatever it holds
};

struct ContextPlanOptions {
  std::int64_t num_ranks = 1;          // of the pool
  std::int64_t max_rows_per_rank = 0;  // of a micro-batch (--max-seqlen-per-dp-cp-rank)
  std::int64_t min_group = 1;          // ranks (--min-dynamic-context-parallel-size)
  std::int64_t row_multiple = 1;       // rows of a rank divide by it (sequence parallelism)
  ContextCosts costs = {};
};

// A micro-batch of one rank: all ranks of its block have the same.
struct ContextMicroBatch {
  std::int64_t group_size = 1;
  std::vector<std::size_t> samples;  // places in the list of lengths
};
// By pool rank, in the order in which they run. Groups never grow along a rank's list and all ranks
// of a block have its micro-batches in the same order, so that none waits for another forever.
using ContextPlan = std::vector<std::vector<ContextMicroBatch>>;

// The largest block that the pool can be dealt into: the largest power of two that divides it.
[[nodiscard]] std::int64_t largest_group(std::int64_t num_ranks);

// Rows of a sample of `length` tokens when `group` ranks share it: each holds two equal chunks,
// whose rows divide by `row_multiple`.
[[nodiscard]] std::int64_t padded_rows(std::int64_t length, std::int64_t group,
                                       std::int64_t row_multiple);

// A sample gets the smallest group in which no rank holds more than max_rows_per_rank, and a larger
// one where its cost would stand out; groups are dealt from the largest down, costly samples first,
// each to the block with the least to do and there into the first micro-batch that has room. So
// ranks end nearly together. The best of several notions of standing out is taken.
// A sample that no group can hold: kData with its length, the group and the option to change. Sizes
// that are no powers of two or below 1: kConfig.
[[nodiscard]] ContextPlan plan_context(std::span<const std::int64_t> lengths,
                                       const ContextPlanOptions& options);

// The plan of static context parallelism, to compare with: every sample is shared by `group` ranks,
// packed in order, each micro-batch for the block with the fewest rows (PackedBatchPlan).
[[nodiscard]] ContextPlan plan_static_context(std::span<const std::int64_t> lengths,
                                              std::int64_t group,
                                              const ContextPlanOptions& options);

struct ContextTiming {
  double makespan = 0;        // until the last rank ends
  double busy = 0;            // mean over the ranks of the time in which they compute
  std::int64_t max_rows = 0;  // of a micro-batch on a rank
};
// Runs the plan: a micro-batch begins when all ranks of its block are there. A plan whose ranks
// wait for one another forever: kInternal.
[[nodiscard]] ContextTiming simulate_context(const ContextPlan& plan,
                                             std::span<const std::int64_t> lengths,
                                             const ContextPlanOptions& options);

}  // namespace pentatron::datasets
