// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "pentatron/config/config.h"

namespace pentatron::config {

// Global batch size as a function of the samples consumed: constant, or in stages that begin at
// counts of tokens (--step-batch-size-schedule "0:768 250B:1536"). A stage begins with the first
// step at whose start at least floor(tokens / sequence length) samples have been consumed, as in
// Megatron.
class BatchSchedule final {
 public:
  // In samples, at least 1; else kConfig.
  explicit BatchSchedule(std::int64_t constant_size);
  // Stages "tokens:samples", separated by blanks or commas, the first at 0, tokens rising, with K,
  // M, B and T for powers of a thousand. ErrorKind::kConfig names what is wrong.
  BatchSchedule(std::string_view text, std::int64_t sequence_length);

  // Batch size of the step that begins after so many samples.
  [[nodiscard]] std::int64_t size_at(std::int64_t consumed_samples) const;
  // Samples consumed after so many steps that begin with `consumed` (0: the start of the run).
  // kConfig error past 2^63.
  [[nodiscard]] std::int64_t samples_after(std::int64_t iterations,
                                           std::int64_t consumed = 0) const;
  // Most whole steps from `consumed` on after which not more than `samples` are consumed.
  [[nodiscard]] std::int64_t iterations_within(std::int64_t samples,
                                               std::int64_t consumed = 0) const;
  // Steps of a run of so many samples, as Megatron counts them: whole ones of a constant size; with
  // stages until so many are consumed, the last step beyond them perhaps.
  [[nodiscard]] std::int64_t iterations_for(std::int64_t samples, std::int64_t consumed = 0) const;
  [[nodiscard]] bool is_constant() const { return stages_.size() == 1; }
  // Sizes in order of the stages.
  [[nodiscard]] std::vector<std::int64_t> sizes() const;
  // The same stages, each size lowered to a multiple of `divisor`. kConfig where nothing is left.
  [[nodiscard]] BatchSchedule lowered_to_multiples_of(std::int64_t divisor) const;

 private:
  struct Stage {
    std::int64_t first_sample = 0;  // least consumed count that belongs to it
    std::int64_t size = 0;
  };
  // Steps from `consumed` on in a stage, none limit: the last.
  [[nodiscard]] std::int64_t steps_of(std::size_t stage, std::int64_t consumed) const;

  std::vector<Stage> stages_;
};

// What each step takes, as the options say; the batch size and the data-parallel size are resolved.
// With --decrease-batch-size-if-needed sizes are lowered to what micro-batches and ranks divide.
[[nodiscard]] BatchSchedule batch_schedule(const RunConfig& config);
// The sizes that the options ask for, which are the same for every number of ranks. Lengths that
// are given in iterations (decay, warm-up, data) are counted in them, as in Megatron, so that a run
// goes on alike when it is resumed on other ranks.
[[nodiscard]] BatchSchedule asked_batch_schedule(const RunConfig& config);
// Of one step: the last stage's, where there are several.
[[nodiscard]] std::int64_t running_batch_size(const RunConfig& config);

}  // namespace pentatron::config
