// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/nn/kv_cache.h"
#include "pentatron/nn/local_stages.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::inference {

// Asks a model for the next token, wherever its parts stand: on this rank alone, or on tensor- and
// pipeline-parallel ranks that all make the same calls and get the same numbers. Holds the caches
// of one sequence.
class ModelRunner final {
 public:
  // `config` is resolved; `stages` are this rank's parts of that model. Both must live as long. A
  // sequence-parallel model (its leaves split token rows) runs without caches, on padded text.
  ModelRunner(const config::RunConfig& config, nn::LocalStages& stages,
              comm::ParallelContext& context, const PrecisionPolicy& policy, Device device = kCpu);

  [[nodiscard]] std::int64_t max_positions() const;

  // A new sequence of at most `max_tokens`; `use_cache`: later calls read the newest token only.
  void begin(std::int64_t max_tokens, bool use_cache);
  // Logits behind the last of `tokens`, one a true vocabulary row, in fp32 on every rank: `tokens`
  // is the whole text so far.
  [[nodiscard]] std::vector<float> next_logits(const std::vector<std::int32_t>& tokens);

 private:
  void forget_short_angles(std::size_t num_tokens);
  [[nodiscard]] Batch batch_of(const std::vector<std::int32_t>& tokens, std::int64_t begin) const;
  // The row's part on this rank -> the whole row on all.
  [[nodiscard]] std::vector<float> gather(const Tensor& row_v);

  const config::RunConfig& config_;
  nn::LocalStages& stages_;
  comm::ParallelContext& context_;
  PrecisionPolicy policy_;
  Device device_;
  std::vector<std::unique_ptr<nn::KvCache>> caches_;  // one a stage; empty: none
  std::size_t num_cached_ = 0;                        // tokens
};

}  // namespace pentatron::inference
