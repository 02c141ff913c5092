// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/datasets/context_plan.h"
#include "pentatron/datasets/sample_batch.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/tensor/sequence_cut.h"

namespace pentatron::training {

// What a token costs in attention, in units of one token's work outside it, by the products of the
// model: n d of the heads against the weights of a layer and its share of the output layer.
[[nodiscard]] double attention_cost(const config::ModelConfig& model);

// Dynamic context parallelism on this rank (--hybrid-context-parallel): its place in the pool of
// the dp x cp ranks that hold its weights, and its group of every size that a sample may be shared
// by, all made at once. Outlives the batches that it cuts.
class DynamicContext final {
 public:
  // `config` is resolved. Collective: all ranks make one at the same time.
  DynamicContext(const config::RunConfig& config, comm::ParallelContext& context);

  // Place in the pool, whose ranks count context before data.
  [[nodiscard]] std::int64_t rank() const { return rank_; }
  [[nodiscard]] const datasets::ContextPlanOptions& plan_options() const { return options_; }
  // This rank's share of whole samples that its group of `group_size` ranks has: filled up so that
  // they divide, and cut (tensor/sequence_cut.h). A size that there is no group of: kInternal.
  [[nodiscard]] Batch share_of(const datasets::SampleBatch& samples, std::int64_t group_size,
                               const PrecisionPolicy& policy) const;

 private:
  datasets::ContextPlanOptions options_;
  std::int64_t rank_;
  std::vector<ContextPlace> places_;  // of groups of 2, 4, 8, ...
};

}  // namespace pentatron::training
