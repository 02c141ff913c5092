// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/batch_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/config/convert.h"

namespace pentatron::config {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
// Token counts beyond this would leave no room for sums.
constexpr double kMaxTokens = 1e18;

// "250B" is 250,000,000,000.
std::int64_t parse_tokens(std::string_view word, std::string_view whole) {
  double unit = 1;
  std::string_view digits = word;
  if (!word.empty()) {
    constexpr std::string_view kUnits = "KMBT";
    const std::size_t place = kUnits.find(word.back());
    if (place != std::string_view::npos) {
      unit = std::pow(1000.0, static_cast<double>(place + 1));
      digits.remove_suffix(1);
    }
  }
  const std::optional<double> number = parse_number(digits);
  const double product = number.value_or(-1) * unit;
  // A decimal fraction is not exact in binary: 1.1B is a whole number all the same.
  const double tokens = std::round(product);
  const bool whole_number = std::abs(product - tokens) <= 1e-12 * tokens;
  PENTATRON_CHECK(
      number && tokens >= 0 && tokens <= kMaxTokens && whole_number, kConfig,
      "--step-batch-size-schedule \"{}\": '{}' is no count of tokens such as 0, 500M or 1.5B",
      whole, word);
  return static_cast<std::int64_t>(tokens);
}

std::vector<std::string> words_of(std::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  std::vector<std::string> words;
  for (const std::string_view word : split_words(spaced, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

}  // namespace

BatchSchedule::BatchSchedule(std::int64_t constant_size) : stages_{{0, constant_size}} {
  PENTATRON_CHECK(constant_size >= 1, kConfig, "--global-batch-size {} must be at least 1",
                  constant_size);
}

BatchSchedule::BatchSchedule(std::string_view text, std::int64_t sequence_length) {
  PENTATRON_CHECK(sequence_length >= 1, kConfig, "--seq-length {} must be at least 1",
                  sequence_length);
  for (const std::string& word : words_of(text)) {
    const std::size_t colon = word.find(':');
    const std::string_view view = word;
    const std::optional<std::int64_t> size =
        colon == std::string::npos ? std::nullopt : parse_integer(view.substr(colon + 1));
    PENTATRON_CHECK(
        size && *size >= 1, kConfig,
        "--step-batch-size-schedule \"{}\": '{}' is no tokens:samples such as 250B:1536", text,
        word);
    const std::int64_t tokens = parse_tokens(view.substr(0, colon), text);
    const std::int64_t first = tokens / sequence_length;
    PENTATRON_CHECK(!stages_.empty() || tokens == 0, kConfig,
                    "--step-batch-size-schedule \"{}\" must begin with 0:samples", text);
    PENTATRON_CHECK(stages_.empty() || first > stages_.back().first_sample, kConfig,
                    "--step-batch-size-schedule \"{}\": '{}' does not begin after the stage before "
                    "it (a sample has {} tokens)",
                    text, word, sequence_length);
    stages_.push_back({first, *size});
  }
  PENTATRON_CHECK(!stages_.empty(), kConfig, "--step-batch-size-schedule is empty");
}

std::int64_t BatchSchedule::size_at(std::int64_t consumed_samples) const {
  std::int64_t size = stages_.front().size;
  for (const Stage& stage : stages_) {
    if (consumed_samples >= stage.first_sample) size = stage.size;
  }
  return size;
}

std::int64_t BatchSchedule::steps_of(std::size_t stage, std::int64_t consumed) const {
  if (stage + 1 == stages_.size()) return kUnlimited;
  const std::int64_t left = stages_[stage + 1].first_sample - consumed;
  if (left <= 0) return 0;
  return (left - 1) / stages_[stage].size + 1;
}

std::int64_t BatchSchedule::samples_after(std::int64_t iterations, std::int64_t consumed) const {
  std::int64_t samples = consumed;
  for (std::size_t s = 0; s < stages_.size() && iterations > 0; ++s) {
    const std::int64_t steps = std::min(iterations, steps_of(s, samples));
    PENTATRON_CHECK(steps <= (kUnlimited - samples) / stages_[s].size, kConfig,
                    "{} steps of {} samples are no count of samples; lower the number of "
                    "iterations or --global-batch-size",
                    steps, stages_[s].size);
    samples += steps * stages_[s].size;
    iterations -= steps;
  }
  return samples;
}

std::int64_t BatchSchedule::iterations_within(std::int64_t samples, std::int64_t consumed) const {
  if (samples <= consumed) return 0;
  std::int64_t iterations = 0;
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    const std::int64_t fit = (samples - consumed) / stages_[s].size;
    const std::int64_t steps = std::min(fit, steps_of(s, consumed));
    iterations += steps;
    consumed += steps * stages_[s].size;
    // The next step of this stage does not fit: a later stage's would skip its turn.
    if (steps < steps_of(s, consumed - steps * stages_[s].size)) break;
  }
  return iterations;
}

std::int64_t BatchSchedule::iterations_for(std::int64_t samples, std::int64_t consumed) const {
  const std::int64_t whole = iterations_within(samples, consumed);
  return is_constant() || samples_after(whole, consumed) >= samples ? whole : whole + 1;
}

std::vector<std::int64_t> BatchSchedule::sizes() const {
  std::vector<std::int64_t> sizes;
  for (const Stage& stage : stages_) sizes.push_back(stage.size);
  return sizes;
}

BatchSchedule BatchSchedule::lowered_to_multiples_of(std::int64_t divisor) const {
  BatchSchedule lowered = *this;
  for (Stage& stage : lowered.stages_) {
    PENTATRON_CHECK(divisor >= 1 && stage.size >= divisor, kConfig,
                    "--decrease-batch-size-if-needed: a batch of {} samples cannot be lowered to a "
                    "multiple of --micro-batch-size x data-parallel size = {}",
                    stage.size, divisor);
    stage.size -= stage.size % divisor;
  }
  return lowered;
}

BatchSchedule asked_batch_schedule(const RunConfig& config) {
  const std::string& text = config.training.step_batch_size_schedule;
  if (text.empty()) return BatchSchedule(config.training.global_batch_size);
  return BatchSchedule(text, config.model.seq_length);
}

BatchSchedule batch_schedule(const RunConfig& config) {
  const TrainingConfig& training = config.training;
  if (!training.decrease_batch_size_if_needed) return asked_batch_schedule(config);
  return asked_batch_schedule(config).lowered_to_multiples_of(training.micro_batch_size *
                                                              config.parallel.data_parallel_size);
}

std::int64_t running_batch_size(const RunConfig& config) {
  return batch_schedule(config).sizes().back();
}

}  // namespace pentatron::config
