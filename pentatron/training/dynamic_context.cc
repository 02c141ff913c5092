// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/dynamic_context.h"

#include <algorithm>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/comm/axis_name.h"
#include "pentatron/comm/group.h"
#include "pentatron/config/latent_attention.h"
#include "pentatron/training/data.h"

namespace pentatron::training {
namespace {

// Neighbours in the pool: inside the context group while that suffices.
comm::Group& group_of(comm::ParallelContext& context, std::int64_t size) {
  const std::int64_t cp = context.size("cp");
  if (size <= cp) return context.group(comm::inside_block("cp", size));
  return context.group({"cp", comm::inside_block("dp", size / cp)});
}

}  // namespace

double attention_cost(const config::ModelConfig& m) {
  const auto product = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  const std::int64_t heads = m.num_attention_heads * m.kv_channels;
  const std::int64_t keys = m.num_query_groups * m.kv_channels;
  const bool gated = m.swiglu || m.geglu || m.quick_geglu;
  const double projections = m.multi_latent_attention
                                 ? config::latent_projection_weights(m)
                                 : product(m.hidden_size, 2 * heads + 2 * keys);
  const double layer = projections + product(m.hidden_size, (gated ? 3 : 2) * m.ffn_hidden_size);
  const double head = product(m.hidden_size, m.padded_vocab_size) /
                      static_cast<double>(std::max<std::int64_t>(1, m.num_layers));
  // Products of queries with keys and of probabilities with values.
  const std::int64_t values = m.num_attention_heads * config::value_channels(m);
  return static_cast<double>(heads + values) / 2.0 / (layer + head);
}

DynamicContext::DynamicContext(const config::RunConfig& config, comm::ParallelContext& context)
    : rank_(context.coordinate("dp") * context.size("cp") + context.coordinate("cp")) {
  const config::ParallelConfig& parallel = config.parallel;
  options_ = {.num_ranks = context.size("dp") * context.size("cp"),
              .max_rows_per_rank = parallel.max_seqlen_per_dp_cp_rank,
              .min_group = parallel.min_dynamic_context_parallel_size,
              .row_multiple = parallel.sequence_parallel ? parallel.tensor_model_parallel_size : 1,
              .costs = {.attention = attention_cost(config.model)}};
  for (std::int64_t size = 2; size <= datasets::largest_group(options_.num_ranks); size *= 2) {
    comm::Group& group = group_of(context, size);
    PENTATRON_CHECK(group.size() == size && group.rank() == rank_ % size, kInternal,
                    "rank {} of the pool is rank {} of a group of {}, not of {}", rank_,
                    group.rank(), group.size(), size);
    places_.push_back({.group = &group, .size = size, .rank = rank_ % size});
  }
}

Batch DynamicContext::share_of(const datasets::SampleBatch& samples, std::int64_t group_size,
                               const PrecisionPolicy& policy) const {
  const std::int64_t rows =
      group_size == 1 ? options_.row_multiple : 2 * group_size * options_.row_multiple;
  Batch whole = to_batch(datasets::padded_samples(samples, rows), policy);
  if (group_size == 1) return whole;
  const auto place = std::find_if(places_.begin(), places_.end(),
                                  [&](const ContextPlace& p) { return p.size == group_size; });
  PENTATRON_CHECK(place != places_.end(), kInternal, "there is no group of {} ranks of {}",
                  group_size, options_.num_ranks);
  return cut_batch(whole, *place);
}

}  // namespace pentatron::training
