// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/blend_index.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace pentatron::datasets {
namespace {

// Picks the member that lags behind most. Looking at all members for every place would take hours
// for thousands of them, so only those are looked at whose lag reaches a level just below the last
// largest lag. When a member will reach it is known from its weight: until then it waits in a wheel
// of places. Where the largest lag falls below the level, or many are above it, a new level is
// chosen.
class LagPicker final {
 public:
  explicit LagPicker(std::span<const double> weights)
      : weights_(weights.begin(), weights.end()),
        drawn_(weights.size(), 0),
        retired_(weights.size(), false),
        wheel_(kWheel) {}

  struct Pick {
    std::size_t member;
    std::int64_t sample;
  };

  // For place `i`, which grows by one from call to call.
  Pick pick(std::int64_t i) {
    const auto at = static_cast<double>(std::max<std::int64_t>(i, 1));
    wake(i);
    if (awake_.empty() || awake_.size() > most_awake_) choose_level(i, at);
    Winner winner = largest(at);
    if (winner.lag < level_) {
      choose_level(i, at);
      winner = largest(at);
    }
    const std::size_t member = awake_[winner.place];
    awake_[winner.place] = awake_.back();
    awake_.pop_back();
    const std::int64_t sample = drawn_[member]++;
    to_sleep(member, i);
    return {member, sample};
  }

  // Never picked again. Of the member of the last pick, or before the first.
  void retire(std::size_t member) { retired_[member] = true; }

 private:
  static constexpr std::int64_t kWheel = 4096;  // places ahead that the wheel holds
  static constexpr std::size_t kAwake = 24, kMaxAwake = 96;

  struct Winner {
    std::size_t place = 0;  // in awake_
    double lag = -std::numeric_limits<double>::infinity();
  };

  [[nodiscard]] double lag_of(std::size_t member, double at) const {
    return weights_[member] * at - static_cast<double>(drawn_[member]);
  }

  [[nodiscard]] Winner largest(double at) const {
    Winner winner;
    for (std::size_t place = 0; place < awake_.size(); ++place) {
      const std::size_t member = awake_[place];
      const double lag = lag_of(member, at);
      if (lag < winner.lag) continue;
      if (lag == winner.lag && member > awake_[winner.place]) continue;
      winner = {.place = place, .lag = lag};
    }
    return winner;
  }

  // Into the wheel for the place where its lag reaches the level, or one before: rounding. What is
  // farther ahead than the wheel comes round and is put back.
  void to_sleep(std::size_t member, std::int64_t i) {
    const double reaches =
        std::floor((static_cast<double>(drawn_[member]) + level_) / weights_[member]) - 1.0;
    const double ahead = std::clamp(reaches - static_cast<double>(i), 1.0, double{kWheel - 1});
    wheel_[static_cast<std::size_t>((i + static_cast<std::int64_t>(ahead)) % kWheel)].push_back(
        member);
  }

  void wake(std::int64_t i) {
    std::vector<std::size_t>& due = wheel_[static_cast<std::size_t>(i % kWheel)];
    for (const std::size_t member : due) {
      if (retired_[member]) continue;
      // The level of a lag at a later place by its own growth, with room for rounding.
      const double next = static_cast<double>(i) + 1.0;
      if (lag_of(member, next) >= level_ - 1e-9 * next) {
        awake_.push_back(member);
      } else {
        sleepers_.push_back(member);
      }
    }
    due.clear();
    for (const std::size_t member : sleepers_) to_sleep(member, i);
    sleepers_.clear();
  }

  // The lag of the kAwake-th member is the level.
  void choose_level(std::int64_t i, double at) {
    for (std::vector<std::size_t>& bucket : wheel_) bucket.clear();
    awake_.clear();
    std::vector<double> lags;
    for (std::size_t member = 0; member < weights_.size(); ++member) {
      if (!retired_[member]) lags.push_back(lag_of(member, at));
    }
    const std::size_t place = std::min(kAwake, lags.size()) - 1;
    std::nth_element(lags.begin(), lags.begin() + static_cast<std::ptrdiff_t>(place), lags.end(),
                     std::greater<>());
    level_ = lags[place];
    for (std::size_t member = 0; member < weights_.size(); ++member) {
      if (retired_[member]) continue;
      if (lag_of(member, at) >= level_) {
        awake_.push_back(member);
      } else {
        to_sleep(member, i);
      }
    }
    // Many members of one weight lag alike, whatever the level.
    most_awake_ = std::max(kMaxAwake, 2 * awake_.size());
  }

  std::vector<double> weights_;
  std::vector<std::int64_t> drawn_;
  std::vector<bool> retired_;
  double level_ = 0;
  std::size_t most_awake_ = 0;                   // for which the level is good
  std::vector<std::size_t> awake_;               // all whose lag reaches the level, and a few more
  std::vector<std::vector<std::size_t>> wheel_;  // members by the place at which they wake
  std::vector<std::size_t> sleepers_;
};

}  // namespace

BlendIndex build_blend_index(std::span<const double> weights, std::int64_t size) {
  BlendIndex index;
  index.members.resize(static_cast<std::size_t>(size));
  index.samples.resize(static_cast<std::size_t>(size));
  LagPicker picker(weights);
  for (std::int64_t i = 0; i < size; ++i) {
    const auto [member, sample] = picker.pick(i);
    index.members[static_cast<std::size_t>(i)] = static_cast<std::int16_t>(member);
    index.samples[static_cast<std::size_t>(i)] = sample;
  }
  return index;
}

BlendIndex build_exhaustive_blend_index(std::span<const std::int64_t> sizes) {
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  BlendIndex index;
  index.members.reserve(static_cast<std::size_t>(total));
  index.samples.reserve(static_cast<std::size_t>(total));
  std::vector<double> weights;
  for (const std::int64_t size : sizes) {
    weights.push_back(static_cast<double>(size) / static_cast<double>(total));
  }
  LagPicker picker(weights);
  for (std::size_t member = 0; member < sizes.size(); ++member) {
    if (sizes[member] == 0) picker.retire(member);
  }
  for (std::int64_t i = 0; i < total; ++i) {
    const auto [member, sample] = picker.pick(i);
    index.members.push_back(static_cast<std::int16_t>(member));
    index.samples.push_back(sample);
    if (sample + 1 == sizes[member]) picker.retire(member);
  }
  return index;
}

}  // namespace pentatron::datasets
