// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/nn/local_stages.h"
#include "pentatron/tensor/batch.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::inference {

// What a model says of a sequence of n tokens.
struct SequenceScores {
  // [n - 1] log p(token i + 1 | tokens 0 to i), natural, with the digits of the policy's statistics
  // dtype. No or one token: empty.
  std::vector<double> logprobs;
  // [n - 1] 1 where that token had the largest logit (of equal ones the lowest id counts), else 0.
  std::vector<std::uint8_t> likeliest;
  // [n, vocabulary], row-major; empty unless asked for. Row i: what follows tokens 0 to i.
  std::vector<float> logits;
};

struct ScorerOptions {
  // Rows of one forward, several sequences side by side; a longer sequence goes alone. At least 1.
  std::int64_t max_rows = 4096;
  bool logits = false;
};

// Scores given tokens with a model, wherever its parts stand: on this rank alone, or on tensor- and
// pipeline-parallel ranks that all make the same calls and get the same numbers. Sequences share a
// forward as packed segments that do not see each other.
class TokenScorer final {
 public:
  // `config` is resolved; `stages` are this rank's parts of that model. Both must live as long.
  TokenScorer(const config::RunConfig& config, nn::LocalStages& stages,
              comm::ParallelContext& context, const PrecisionPolicy& policy, Device device,
              const ScorerOptions& options);

  // Tokens that one sequence may feed to the model.
  [[nodiscard]] std::int64_t max_positions() const;

  // Of each sequence, in their order. The last token is not fed to the model unless logits are
  // asked for, so a sequence may have one more than max_positions(), else kConfig. A token outside
  // the vocabulary, or logits that are not finite: kData.
  [[nodiscard]] std::vector<SequenceScores> score(
      std::span<const std::vector<std::int32_t>> sequences);

 private:
  using MicroBatch = std::vector<std::size_t>;  // numbers of the sequences

  [[nodiscard]] std::int64_t rows_of(const std::vector<std::int32_t>& tokens) const;
  void check(const std::vector<std::int32_t>& tokens) const;
  [[nodiscard]] std::vector<MicroBatch> pack(
      std::span<const std::vector<std::int32_t>> sequences) const;
  [[nodiscard]] Batch batch_of(std::span<const std::vector<std::int32_t>> sequences,
                               const MicroBatch& members) const;
  void run(std::span<const std::vector<std::int32_t>> sequences, std::span<const MicroBatch> group,
           std::vector<SequenceScores>& scores);
  // Log-probabilities and flags of a micro-batch's rows, as bytes, where its logits are.
  [[nodiscard]] std::string row_scores(const Tensor& logits, const Tensor& labels_t);
  void gather_logits(const Tensor& logits_tv, std::int64_t first_row, SequenceScores& scores,
                     std::int64_t num_rows);

  const config::RunConfig& config_;
  nn::LocalStages& stages_;
  comm::ParallelContext& context_;
  PrecisionPolicy policy_;
  Device device_;
  ScorerOptions options_;
};

}  // namespace pentatron::inference
