// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/parallel/parity_case.h"

// Layouts generated from the axes: each alone, all pairs and chosen triples of them.
namespace pentatron::parity {

inline constexpr std::int64_t kMaxSweepRanks = 8;

struct NamedLayout {
  std::string name;  // of its axes: "TP2_ZeRO1"
  Layout layout;
};

// One value of one axis each. What a value stands on comes with it where the others do not bring
// it: sequence parallelism two tensor-parallel ranks, virtual stages two stages, shards two
// data-parallel ranks.
[[nodiscard]] std::vector<NamedLayout> single_layouts();
// Two values of two axes; none that is a pair by another name.
[[nodiscard]] std::vector<NamedLayout> pair_layouts();
[[nodiscard]] std::vector<NamedLayout> triple_layouts();

// Every way in which gradients are reduced, in several buckets each, alone and beside the other
// axes.
[[nodiscard]] std::vector<NamedLayout> layouts_of_several_buckets();
// How many buckets each rank of such a layout has at least.
[[nodiscard]] std::size_t least_buckets(const Layout& layout);

// Kinds of dense models.
struct NamedKind {
  std::string name;
  CaseOptions options;
};
[[nodiscard]] std::vector<NamedKind> dense_kinds();

// Why such a run cannot be, or empty: too many ranks, or the words with which the program refuses
// it.
[[nodiscard]] std::string refusal_of(const CaseOptions& options, const Layout& layout);

}  // namespace pentatron::parity
