// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/validate_context.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/context_comm.h"
#include "pentatron/config/heterogeneous_layers.h"

namespace pentatron::config {
namespace {

void check_rows(const ModelConfig& model, const ParallelConfig& parallel, Problems& problems) {
  const std::int64_t cp = parallel.context_parallel_size, tp = parallel.tensor_model_parallel_size;
  if (cp > 1 && model.seq_length % (2 * cp) != 0) {
    problems.add(
        fmt::format("--seq-length {} does not divide by 2 x --context-parallel-size {}: each rank "
                    "holds two equal chunks of a sample; change one of the two",
                    model.seq_length, cp));
  } else if (parallel.sequence_parallel && model.seq_length / cp % tp != 0) {
    const std::string shared =
        cp > 1 ? fmt::format(" / --context-parallel-size {}", cp) : std::string();
    problems.add(
        fmt::format("--sequence-parallel: --seq-length {}{} does not divide by "
                    "--tensor-model-parallel-size {}",
                    model.seq_length, shared, tp));
  }
}

// `ranks` exchange the heads that a tensor-parallel rank has. Query groups fewer than
// tensor-parallel ranks are copied to them: each has one.
void check_heads(const ModelConfig& model, std::int64_t tp, std::int64_t ranks,
                 std::string_view type, Problems& problems) {
  const std::int64_t heads = model.num_attention_heads / tp;
  std::int64_t query_groups = model.num_query_groups;
  for (const LayerShape& layer : layer_shapes(model)) {
    const std::int64_t of_layer = std::max<std::int64_t>(1, layer.num_query_groups / tp);
    if (layer.num_query_groups > 0 && of_layer % ranks != 0) query_groups = layer.num_query_groups;
  }
  const std::int64_t groups = std::max<std::int64_t>(1, query_groups / tp);
  const auto add = [&](std::string_view option, std::int64_t value, std::int64_t of_rank) {
    problems.add(fmt::format(
        "--cp-comm-type {}: {} {} gives each of --tensor-model-parallel-size {} ranks {}, which {} "
        "context-parallel ranks cannot share evenly: use --cp-comm-type p2p or all_gather, or "
        "change the sizes",
        type, option, value, tp, of_rank, ranks));
  };
  if (heads % ranks != 0) {
    add("--num-attention-heads", model.num_attention_heads, heads);
  } else if (groups % ranks != 0) {
    add("--num-query-groups", query_groups, groups);
  }
}

}  // namespace

void check_context_parallel(const ModelConfig& model, const ParallelConfig& parallel,
                            Problems& problems) {
  check_rows(model, parallel, problems);
  try {
    const std::vector<ContextComm> types = context_comm_of_layers(model);
    const ContextHierarchy hierarchy = context_hierarchy(parallel);
    if (parallel.context_parallel_size == 1 || model.num_attention_heads == 0) return;
    const auto some = [&](ContextComm type) {
      return std::find(types.begin(), types.end(), type) != types.end();
    };
    const std::int64_t tp = parallel.tensor_model_parallel_size;
    if (some(ContextComm::kA2a)) {
      check_heads(model, tp, parallel.context_parallel_size, "a2a", problems);
    }
    if (!some(ContextComm::kA2aP2p)) return;
    if (parallel.hierarchical_context_parallel_sizes.empty()) {
      problems.add(
          fmt::format("--cp-comm-type a2a+p2p needs --hierarchical-context-parallel-sizes, two "
                      "numbers that multiply to --context-parallel-size {}",
                      parallel.context_parallel_size));
      return;
    }
    check_heads(model, tp, hierarchy.inner, "a2a+p2p", problems);
  } catch (const Error& error) {
    problems.add(error.what());
  }
}

}  // namespace pentatron::config
