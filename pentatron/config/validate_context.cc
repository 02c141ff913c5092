// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/validate_context.h"

#include <algorithm>
#include <bit>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/context_comm.h"
#include "pentatron/config/heterogeneous_layers.h"

namespace pentatron::config {
namespace {

void check_rows(const ModelConfig& model, const ParallelConfig& parallel, Problems& problems) {
  const std::int64_t cp = parallel.context_parallel_size, tp = parallel.tensor_model_parallel_size;
  if (parallel.dynamic_context_parallel) return;  // samples are filled up to what divides
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

void check_dynamic_context(const RunConfig& config, Problems& problems) {
  const ParallelConfig& p = config.parallel;
  if (!p.dynamic_context_parallel) return;
  constexpr const char* kOption = "--hybrid-context-parallel";
  const std::int64_t cp = p.context_parallel_size, ranks = cp * p.data_parallel_size;
  const std::int64_t largest = ranks & -ranks;  // power of two that divides
  const auto need = [&](bool holds, const std::string& what) {
    if (!holds) problems.add(fmt::format("{} {}", kOption, what));
  };
  need(config.data.sft, "deals conversations of unequal length: it needs --sft");
  need(p.pipeline_model_parallel_size == 1,
       fmt::format("gives ranks unequal numbers of micro-batches of unequal size: it needs "
                   "--pipeline-model-parallel-size 1, not {}",
                   p.pipeline_model_parallel_size));
  need(!p.use_megatron_fsdp,
       fmt::format("does not go with --use-megatron-fsdp (--data-parallel-sharding-strategy {}): "
                   "use --use-distributed-optimizer",
                   p.data_parallel_sharding_strategy));
  need(config.training.cuda_graph_impl == "none",
       fmt::format("has other micro-batches in every step, which --cuda-graph-impl {} cannot "
                   "replay: drop one of the two",
                   config.training.cuda_graph_impl));
  for (const std::string& type : config.model.cp_comm_type) {
    need(!type.starts_with("a2a"),
         fmt::format("goes with --cp-comm-type p2p or all_gather, not {}: heads would have to "
                     "divide by every size of group",
                     type));
  }
  need(std::has_single_bit(static_cast<std::uint64_t>(cp)),
       fmt::format("makes groups of 1, 2, 4, ... ranks: --context-parallel-size {} is no power of "
                   "two",
                   cp));
  need(largest > 1, fmt::format("needs an even number of data x context ranks, not {} x {} "
                                "(--world-size, --context-parallel-size)",
                                p.data_parallel_size, cp));
  if (p.max_seqlen_per_dp_cp_rank < 1) {
    problems.add(fmt::format("{} needs --max-seqlen-per-dp-cp-rank, the tokens that a rank holds "
                             "of a micro-batch",
                             kOption),
                 "max_seqlen_per_dp_cp_rank");
    return;
  }
  const std::int64_t minimum = p.min_dynamic_context_parallel_size;
  if (minimum < 1 || minimum > largest ||
      !std::has_single_bit(static_cast<std::uint64_t>(minimum))) {
    problems.add(
        fmt::format("--min-dynamic-context-parallel-size {}: expected a power of two from "
                    "1 to {}, the largest that divides {} data x context ranks",
                    minimum, largest, ranks));
  }
  const std::int64_t multiple =
      2 * largest * (p.sequence_parallel ? p.tensor_model_parallel_size : 1);
  const std::int64_t rows =
      (config.model.seq_length + multiple - 1) / multiple * multiple / largest;
  need(rows <= p.max_seqlen_per_dp_cp_rank,
       fmt::format("shares a sample of --seq-length {} by {} ranks at most, {} tokens each: raise "
                   "--max-seqlen-per-dp-cp-rank {} or lower --seq-length",
                   config.model.seq_length, largest, rows, p.max_seqlen_per_dp_cp_rank));
}

}  // namespace pentatron::config
