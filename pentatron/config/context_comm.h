// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "pentatron/config/config.h"

namespace pentatron::config {

// How the ranks of context parallelism bring queries and keys together (--cp-comm-type).
enum class ContextComm {
  kP2p,        // keys and values go round a ring, a rank's share at a time
  kAllGather,  // every rank gathers them
  kA2a,        // ranks exchange rows for heads: each has all rows of its heads
  kA2aP2p      // so do neighbours, and such groups form a ring
};

// The type that a word of --cp-comm-type names; kConfig for any other word.
[[nodiscard]] ContextComm parse_context_comm(std::string_view word);

// One a layer. Words for all layers, or one for all of them; else kConfig with both numbers.
[[nodiscard]] std::vector<ContextComm> context_comm_of_layers(const ModelConfig& model);

// --hierarchical-context-parallel-sizes: neighbours that exchange heads, and groups of them that
// form a ring.
struct ContextHierarchy {
  std::int64_t inner = 1;
  std::int64_t outer = 1;
};
// {1, context_parallel_size} where the option is not given. Other than two numbers, or numbers that
// do not multiply to --context-parallel-size: kConfig.
[[nodiscard]] ContextHierarchy context_hierarchy(const ParallelConfig& parallel);

}  // namespace pentatron::config
