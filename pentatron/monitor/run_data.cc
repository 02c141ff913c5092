// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/run_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace pentatron::monitor {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void RunData::clear() {
  resize(0);
  evaluations_.clear();
  samples_.clear();
  start_.clear();
  num_starts_ = 0;
  train_iters_ = 0;
  ++generation_;
  ++version_;
  ++samples_version_;
}

void RunData::resize(std::size_t size) {
  iteration_.resize(size);
  tokens_.resize(size);
  seconds_.resize(size);
  for (std::vector<float>& column : values_) column.resize(size);
}

void RunData::add(Record record) {
  ++version_;
  switch (record.kind) {
    case RecordKind::kTrain:
      return add_training(record);
    case RecordKind::kValidation:
      return add_evaluation(record);
    case RecordKind::kSample:
      return add_sample(std::move(record));
    case RecordKind::kRun:
      return add_start(std::move(record));
    case RecordKind::kTest:
      return;
  }
}

void RunData::add_training(const Record& record) {
  if (!iteration_.empty() && iteration_.back() >= record.iteration) {
    const auto keep = std::lower_bound(iteration_.begin(), iteration_.end(), record.iteration);
    resize(static_cast<std::size_t>(keep - iteration_.begin()));
    ++generation_;
  }
  const double seconds = record.values[kSecondsField];
  // Older files do not count tokens: rate times duration is what a step took.
  const double step_tokens = record.values[kSpeedField] * seconds;
  const double before = tokens_.empty() ? 0 : tokens_.back();
  double tokens = record.consumed_tokens;
  if (!std::isfinite(tokens)) {
    tokens = before + (std::isfinite(step_tokens) ? std::round(step_tokens) : 0);
  }
  tokens_.push_back(std::max(before, tokens));
  const double passed = seconds_.empty() ? 0 : seconds_.back();
  seconds_.push_back(passed + (std::isfinite(seconds) && seconds > 0 ? seconds : 0));
  iteration_.push_back(record.iteration);
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    values_[i].push_back(static_cast<float>(record.values[i]));
  }
  newest_time_ = record.time;
}

void RunData::add_evaluation(const Record& record) {
  const auto found = evaluations_.find(record.set);
  if (found == evaluations_.end() && evaluations_.size() >= kMaxSets) return;
  std::vector<Evaluation>& list = evaluations_[record.set];
  if (!list.empty() && list.back().iteration >= record.iteration) {
    std::erase_if(list, [&](const Evaluation& e) { return e.iteration >= record.iteration; });
    ++generation_;
  }
  list.push_back({.iteration = record.iteration,
                  .tokens = tokens_.empty() ? 0 : tokens_.back(),
                  .seconds = seconds_.empty() ? 0 : seconds_.back(),
                  .loss = record.values[kLossField]});
  if (list.size() > kMaxEvaluations) {
    list.erase(list.begin(), list.begin() + kMaxEvaluations / 2);
    ++generation_;
  }
}

void RunData::add_sample(Record record) {
  ++samples_version_;
  // After training the last evaluation is made once more.
  std::erase_if(samples_, [&](const Sample& s) {
    return s.iteration == record.iteration && s.prompt == record.prompt;
  });
  samples_.push_back({record.iteration, std::move(record.prompt), std::move(record.text)});
  if (samples_.size() > kMaxSamples) {
    samples_.erase(samples_.begin(), samples_.begin() + kMaxSamples / 2);
  }
}

void RunData::add_start(Record record) {
  ++num_starts_;
  start_ = std::move(record.text);
  const auto json = nlohmann::json::parse(start_, nullptr, /*allow_exceptions=*/false);
  const auto iterations = json.find("train_iters");
  const bool told = iterations != json.end() && iterations->is_number_unsigned() &&
                    iterations->get<std::uint64_t>() < (1ULL << 53);
  train_iters_ = told ? iterations->get<std::int64_t>() : 0;
}

void RunData::thin_out() {
  constexpr std::size_t kGroup = 4;
  const std::vector<float>& loss = values_[kLossField];
  std::size_t kept = 0;
  for (std::size_t begin = 0; begin < iteration_.size(); begin += kGroup) {
    const std::size_t end = std::min(begin + kGroup, iteration_.size());
    const auto [least, greatest] =
        std::minmax_element(loss.begin() + static_cast<std::ptrdiff_t>(begin),
                            loss.begin() + static_cast<std::ptrdiff_t>(end));
    std::size_t first = static_cast<std::size_t>(std::min(least, greatest) - loss.begin());
    std::size_t second = static_cast<std::size_t>(std::max(least, greatest) - loss.begin());
    if (first == second) {
      first = begin;
      second = end - 1;
    }
    for (const std::size_t from : {first, second}) {
      if (from == second && kept > 0 && iteration_[kept - 1] == iteration_[second]) continue;
      iteration_[kept] = iteration_[from];
      tokens_[kept] = tokens_[from];
      seconds_[kept] = seconds_[from];
      for (std::vector<float>& column : values_) column[kept] = column[from];
      ++kept;
    }
  }
  resize(kept);
  ++generation_;
  ++version_;
}

double RunData::axis_value(Axis axis, std::size_t place) const {
  switch (axis) {
    case Axis::kTokens:
      return tokens_[place];
    case Axis::kTime:
      return seconds_[place];
    case Axis::kIteration:
      break;
  }
  return static_cast<double>(iteration_[place]);
}

// The first record at x or behind it.
std::size_t RunData::lower_bound(Axis axis, double x) const {
  std::size_t low = 0;
  std::size_t high = iteration_.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (axis_value(axis, middle) < x) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

void RunData::look_at_new_losses() {
  if (seen_generation_ != generation_) {
    seen_generation_ = generation_;
    num_seen_ = 0;
    best_iteration_ = -1;
    best_loss_ = kNan;
  }
  for (; num_seen_ < iteration_.size(); ++num_seen_) {
    const double loss = values_[kLossField][num_seen_];
    if (!std::isfinite(loss) || (best_iteration_ >= 0 && loss >= best_loss_)) continue;
    best_loss_ = loss;
    best_iteration_ = iteration_[num_seen_];
  }
}

double RunData::mean_of_newest(std::size_t field) const {
  constexpr std::size_t kNewest = 50;
  double sum = 0;
  double count = 0;
  for (std::size_t i = iteration_.size() - std::min(kNewest, iteration_.size());
       i < iteration_.size(); ++i) {
    if (!std::isfinite(values_[field][i])) continue;
    sum += values_[field][i];
    ++count;
  }
  return count > 0 ? sum / count : kNan;
}

}  // namespace pentatron::monitor
