// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/context_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

// A sample's share of a rank's ideal load from which on it gets a larger group.
constexpr std::array kStandingOut{std::numeric_limits<double>::infinity(), 1.0, 0.5, 0.25, 0.125};

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// On each of `group` ranks, without what a micro-batch costs by itself.
double cost_of(std::int64_t length, std::int64_t group, const ContextCosts& costs) {
  const auto tokens = static_cast<double>(length), ranks = static_cast<double>(group);
  return (tokens + costs.attention * tokens * tokens + costs.exchange * tokens * (ranks - 1)) /
         ranks;
}

void check_options(const ContextPlanOptions& options) {
  PENTATRON_CHECK(
      options.num_ranks >= 1 && options.max_rows_per_rank >= 1 && options.row_multiple >= 1,
      kConfig, "{} ranks, --max-seqlen-per-dp-cp-rank {} and rows by {} must be 1 or more",
      options.num_ranks, options.max_rows_per_rank, options.row_multiple);
  const std::int64_t largest = largest_group(options.num_ranks);
  PENTATRON_CHECK(options.min_group >= 1 && options.min_group <= largest &&
                      std::has_single_bit(static_cast<std::uint64_t>(options.min_group)),
                  kConfig,
                  "--min-dynamic-context-parallel-size {}: expected a power of two from 1 to {}, "
                  "the largest that divides {} data x context ranks",
                  options.min_group, largest, options.num_ranks);
}

// The smallest group that holds the sample and in which it costs a rank no more than `most`.
std::int64_t group_for(std::int64_t length, double most, const ContextPlanOptions& options) {
  const std::int64_t largest = largest_group(options.num_ranks);
  std::int64_t group = options.min_group;
  const auto fits = [&] {
    return padded_rows(length, group, options.row_multiple) / group <= options.max_rows_per_rank;
  };
  while (group < largest && !fits()) group *= 2;
  PENTATRON_CHECK(fits(), kData,
                  "a sample of {} tokens does not fit {} data x context ranks with "
                  "--max-seqlen-per-dp-cp-rank {}: raise it, or lower --seq-length",
                  length, group, options.max_rows_per_rank);
  while (group < largest && cost_of(length, group, options.costs) > most) group *= 2;
  return group;
}

// Fills blocks with micro-batches.
class Dealer final {
 public:
  explicit Dealer(const ContextPlanOptions& options)
      : options_(options),
        plan_(static_cast<std::size_t>(options.num_ranks)),
        rows_(plan_.size()),
        loads_(plan_.size(), 0.0) {}

  // To the block with the least to do. Groups must not grow from call to call, so all ranks of a
  // block have done as much before.
  void deal(std::size_t sample, std::int64_t length, std::int64_t group) {
    std::size_t block = 0;
    const auto ranks = static_cast<std::size_t>(group);
    for (std::size_t first = 0; first < plan_.size(); first += ranks) {
      if (loads_[first] < loads_[block]) block = first;
    }
    double cost = cost_of(length, group, options_.costs);
    if (put(block, sample, length, group)) cost += options_.costs.micro_batch;
    for (std::size_t rank = block; rank < block + ranks; ++rank) loads_[rank] += cost;
  }
  [[nodiscard]] double most() const { return *std::max_element(loads_.begin(), loads_.end()); }
  [[nodiscard]] ContextPlan take() { return std::move(plan_); }

 private:
  // Whether it took a new micro-batch.
  bool put(std::size_t block, std::size_t sample, std::int64_t length, std::int64_t group) {
    const std::int64_t rows = padded_rows(length, group, options_.row_multiple) / group;
    const auto end = block + static_cast<std::size_t>(group);
    for (std::size_t i = 0; i < plan_[block].size(); ++i) {
      if (plan_[block][i].group_size != group) continue;
      if (rows_[block][i] + rows > options_.max_rows_per_rank) continue;
      for (std::size_t rank = block; rank < end; ++rank) {
        plan_[rank][i].samples.push_back(sample);
        rows_[rank][i] += rows;
      }
      return false;
    }
    for (std::size_t rank = block; rank < end; ++rank) {
      plan_[rank].push_back({.group_size = group, .samples = {sample}});
      rows_[rank].push_back(rows);
    }
    return true;
  }

  const ContextPlanOptions& options_;
  ContextPlan plan_;
  std::vector<std::vector<std::int64_t>> rows_;  // of a rank, by micro-batch
  std::vector<double> loads_;
};

}  // namespace

std::int64_t largest_group(std::int64_t num_ranks) {
  return num_ranks < 1 ? 1 : num_ranks & -num_ranks;
}

std::int64_t padded_rows(std::int64_t length, std::int64_t group, std::int64_t row_multiple) {
  return round_up(length, group == 1 ? row_multiple : 2 * group * row_multiple);
}

ContextPlan plan_context(std::span<const std::int64_t> lengths, const ContextPlanOptions& options) {
  check_options(options);
  double all = 0;
  for (const std::int64_t length : lengths) all += cost_of(length, 1, options.costs);
  const double ideal = all / static_cast<double>(options.num_ranks);
  ContextPlan best;
  double least = 0;
  for (const double standing_out : kStandingOut) {
    std::vector<std::int64_t> groups;
    for (const std::int64_t length : lengths) {
      groups.push_back(group_for(length, standing_out * ideal, options));
    }
    std::vector<std::size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return groups[a] != groups[b] ? groups[a] > groups[b] : lengths[a] > lengths[b];
    });
    Dealer dealer(options);
    for (const std::size_t i : order) dealer.deal(i, lengths[i], groups[i]);
    if (!best.empty() && dealer.most() >= least) continue;
    least = dealer.most();
    best = dealer.take();
  }
  return best;
}

ContextPlan plan_static_context(std::span<const std::int64_t> lengths, std::int64_t group,
                                const ContextPlanOptions& options) {
  check_options(options);
  PENTATRON_CHECK(group >= 1 && options.num_ranks % group == 0, kConfig,
                  "{} ranks do not divide into groups of {}", options.num_ranks, group);
  ContextPlan plan(static_cast<std::size_t>(options.num_ranks));
  std::vector<std::int64_t> rows_of(static_cast<std::size_t>(options.num_ranks / group), 0);
  ContextMicroBatch packed{.group_size = group, .samples = {}};
  std::int64_t rows = 0;
  const auto hand_out = [&] {
    if (packed.samples.empty()) return;
    const auto least = std::min_element(rows_of.begin(), rows_of.end());
    *least += rows;
    const std::int64_t first = (least - rows_of.begin()) * group;
    for (std::int64_t rank = first; rank < first + group; ++rank) {
      plan[static_cast<std::size_t>(rank)].push_back(packed);
    }
    packed.samples.clear();
    rows = 0;
  };
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t own = padded_rows(lengths[i], group, options.row_multiple) / group;
    PENTATRON_CHECK(own <= options.max_rows_per_rank, kData,
                    "a sample of {} tokens does not fit {} ranks of {} rows", lengths[i], group,
                    options.max_rows_per_rank);
    if (rows + own > options.max_rows_per_rank) hand_out();
    packed.samples.push_back(i);
    rows += own;
  }
  hand_out();
  return plan;
}

ContextTiming simulate_context(const ContextPlan& plan, std::span<const std::int64_t> lengths,
                               const ContextPlanOptions& options) {
  ContextTiming timing;
  std::vector<std::size_t> next(plan.size(), 0);
  std::vector<double> clock(plan.size(), 0.0);
  bool moved = true;
  while (std::exchange(moved, false)) {
    for (std::size_t rank = 0; rank < plan.size(); ++rank) {
      if (next[rank] == plan[rank].size()) continue;
      const ContextMicroBatch& batch = plan[rank][next[rank]];
      const auto ranks = static_cast<std::size_t>(batch.group_size);
      const std::size_t first = rank / ranks * ranks;
      // The block's first rank starts it, once all of the block stand before it.
      if (rank != first) continue;
      double begin = 0, cost = options.costs.micro_batch;
      bool ready = true;
      for (std::size_t peer = first; peer < first + ranks; ++peer) {
        ready = ready && next[peer] < plan[peer].size() &&
                plan[peer][next[peer]].group_size == batch.group_size &&
                plan[peer][next[peer]].samples == batch.samples;
        begin = std::max(begin, clock[peer]);
      }
      if (!ready) continue;
      std::int64_t rows = 0;
      for (const std::size_t i : batch.samples) {
        cost += cost_of(lengths[i], batch.group_size, options.costs);
        rows += padded_rows(lengths[i], batch.group_size, options.row_multiple) / batch.group_size;
      }
      timing.max_rows = std::max(timing.max_rows, rows);
      timing.busy += cost * static_cast<double>(ranks) / static_cast<double>(plan.size());
      for (std::size_t peer = first; peer < first + ranks; ++peer) {
        clock[peer] = begin + cost;
        ++next[peer];
      }
      moved = true;
    }
  }
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    PENTATRON_CHECK(next[rank] == plan[rank].size(), kInternal,
                    "rank {} waits forever at micro-batch {} of {}", rank, next[rank],
                    plan[rank].size());
    timing.makespan = std::max(timing.makespan, clock[rank]);
  }
  return timing;
}

}  // namespace pentatron::datasets
