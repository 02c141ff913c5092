// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/context_comm.h"

#include <fmt/ranges.h>

#include <charconv>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"

namespace pentatron::config {
namespace {

std::int64_t number(const std::string& word) {
  std::int64_t value = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, failure] = std::from_chars(word.data(), end, value);
  PENTATRON_CHECK(failure == std::errc() && stop == end && value >= 1, kConfig,
                  "--hierarchical-context-parallel-sizes {}: expected a number of at least 1",
                  quoted_for_message(word));
  return value;
}

}  // namespace

ContextComm parse_context_comm(std::string_view word) {
  if (word == "p2p") return ContextComm::kP2p;
  if (word == "all_gather" || word == "allgather") return ContextComm::kAllGather;
  if (word == "a2a") return ContextComm::kA2a;
  if (word == "a2a+p2p") return ContextComm::kA2aP2p;
  PENTATRON_THROW(kConfig, "--cp-comm-type {}: expected one of p2p, all_gather, a2a, a2a+p2p",
                  quoted_for_message(std::string(word)));
}

std::vector<ContextComm> context_comm_of_layers(const ModelConfig& model) {
  const std::size_t words = model.cp_comm_type.size();
  const auto layers = static_cast<std::size_t>(model.num_layers);
  PENTATRON_CHECK(words == 1 || words == layers, kConfig,
                  "--cp-comm-type has {} words for --num-layers {}: give one, or one a layer",
                  words, layers);
  std::vector<ContextComm> types;
  types.reserve(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    types.push_back(parse_context_comm(model.cp_comm_type[words == 1 ? 0 : layer]));
  }
  return types;
}

ContextHierarchy context_hierarchy(const ParallelConfig& parallel) {
  const std::vector<std::string>& words = parallel.hierarchical_context_parallel_sizes;
  if (words.empty()) return {1, parallel.context_parallel_size};
  PENTATRON_CHECK(
      words.size() == 2, kConfig,
      "--hierarchical-context-parallel-sizes {} has {} numbers: expected two, the ranks "
      "that exchange heads and the groups of a ring",
      fmt::join(words, " "), words.size());
  const ContextHierarchy sizes{number(words[0]), number(words[1])};
  PENTATRON_CHECK(sizes.inner <= parallel.context_parallel_size &&
                      sizes.outer <= parallel.context_parallel_size &&
                      sizes.inner * sizes.outer == parallel.context_parallel_size,
                  kConfig,
                  "--hierarchical-context-parallel-sizes {} {} do not multiply to "
                  "--context-parallel-size {}: change the one or the other",
                  sizes.inner, sizes.outer, parallel.context_parallel_size);
  return sizes;
}

}  // namespace pentatron::config
