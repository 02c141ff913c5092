// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/blend_index.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace pentatron::datasets {
namespace {

// Members of one weight take turns in order of their numbers, so they are one class with one lag,
// that of the member whose turn it is.
struct WeightClass {
  double weight = 0;
  double places = 0;                       // from one turn of a member to its next: 1 / weight
  double drawn = 0;                        // samples of the member whose turn it is
  std::size_t turn = 0;                    // its place in `members`
  std::vector<std::int32_t> members = {};  // ascending
};

// Picks the member that lags behind most. Looking at all members for every place would take hours
// for thousands of them, so only those classes are looked at whose lag reaches a level just below
// the last largest lag. When a class will reach it is known from its weight: until then it waits in
// a wheel of places. Where the largest lag falls below the level, or many are above it, a new level
// is chosen, so that as much work goes into choices as into looking.
class LagPicker final {
 public:
  explicit LagPicker(std::span<const double> weights) : wheel_(kWheel, kNone) {
    std::map<double, std::size_t> places;
    for (std::size_t member = 0; member < weights.size(); ++member) {
      const auto [at, fresh] = places.emplace(weights[member], classes_.size());
      if (fresh) classes_.push_back({.weight = weights[member], .places = 1 / weights[member]});
      classes_[at->second].members.push_back(static_cast<std::int32_t>(member));
      class_of_.push_back(at->second);
    }
    next_.assign(classes_.size(), kNone);
  }

  struct Pick {
    std::size_t member;
    std::int64_t sample;
  };

  // For place `i`, which grows by one from call to call.
  Pick pick(std::int64_t i) {
    const auto at = static_cast<double>(std::max<std::int64_t>(i, 1));
    wake(i);
    if (awake_.empty() || awake_.size() > most_awake_ || looked_ > most_looks_) choose_level(i, at);
    Winner winner = largest(at);
    if (winner.lag < level_) {
      choose_level(i, at);
      winner = largest(at);
    }
    WeightClass& chosen = classes_[awake_[winner.place].of];
    const Pick pick{.member = static_cast<std::size_t>(chosen.members[chosen.turn]),
                    .sample = static_cast<std::int64_t>(chosen.drawn)};
    if (++chosen.turn == chosen.members.size()) begin_round(chosen);
    move_on(winner.place, i);
    return pick;
  }

  // Never picked again. Of the member of the last pick, or before the first.
  void retire(std::size_t member) {
    WeightClass& its = classes_[class_of_[member]];
    const auto found = std::ranges::lower_bound(its.members, static_cast<std::int32_t>(member));
    const auto place = static_cast<std::size_t>(found - its.members.begin());
    its.members.erase(found);
    if (place < its.turn) --its.turn;
    // One that is awake is found to be gone when a level is chosen.
    if (its.members.empty()) most_awake_ = 0;
  }

 private:
  static constexpr std::int64_t kWheel = 4096;  // places ahead that the wheel holds
  static constexpr std::size_t kFewestAwake = 8;
  static constexpr std::int32_t kNone = -1;
  static constexpr double kRounding = 1e-12;  // share of a place, far above that of fp64

  // What is looked at of a class whose lag reaches the level.
  struct Awake {
    double weight;
    double drawn;
    std::uint32_t of;  // its place in classes_
  };
  struct Winner {
    std::size_t place = 0;  // in awake_
    double lag = -std::numeric_limits<double>::infinity();
  };

  static double lag_of(double weight, double drawn, double at) { return weight * at - drawn; }

  static void begin_round(WeightClass& its) {
    its.turn = 0;
    its.drawn += 1;
  }

  [[nodiscard]] std::int32_t member_at(std::size_t place) const {
    const WeightClass& its = classes_[awake_[place].of];
    return its.members[its.turn];
  }

  [[nodiscard]] Winner largest(double at) {
    looked_ += awake_.size();
    Winner winner;
    for (std::size_t place = 0; place < awake_.size(); ++place) {
      const double lag = lag_of(awake_[place].weight, awake_[place].drawn, at);
      if (lag < winner.lag) continue;
      // The first member of equals.
      if (lag == winner.lag && member_at(place) > member_at(winner.place)) continue;
      winner = {.place = place, .lag = lag};
    }
    return winner;
  }

  // After the pick of place `i`: the class stays awake while its lag reaches the level.
  void move_on(std::size_t place, std::int64_t i) {
    const std::uint32_t of = awake_[place].of;
    const WeightClass& its = classes_[of];
    awake_[place].drawn = its.drawn;
    if (reaches_level_after(its, i)) return;
    awake_[place] = awake_.back();
    awake_.pop_back();
    to_sleep(of, i);
  }

  // Whether its lag may reach the level at the place after `i`, with room for rounding.
  [[nodiscard]] bool reaches_level_after(const WeightClass& its, std::int64_t i) const {
    const double next = static_cast<double>(i) + 1.0;
    return lag_of(its.weight, its.drawn, next) >= level_ - kRounding * next;
  }

  // Into the wheel for the place where its lag reaches the level, or a little before: rounding.
  // What is farther ahead than the wheel comes round and is put back.
  void to_sleep(std::uint32_t of, std::int64_t i) {
    const WeightClass& its = classes_[of];
    constexpr double kEarly = 1e-6;  // places; level and samples drawn may nearly cancel
    const double reaches = (its.drawn + level_) * its.places * (1 - kRounding) - kEarly;
    const double ahead = std::clamp(reaches - static_cast<double>(i), 1.0, double{kWheel - 1});
    std::int32_t& first =
        wheel_[static_cast<std::size_t>((i + static_cast<std::int64_t>(ahead)) % kWheel)];
    next_[of] = first;
    first = static_cast<std::int32_t>(of);
  }

  void wake(std::int64_t i) {
    std::int32_t due = std::exchange(wheel_[static_cast<std::size_t>(i % kWheel)], kNone);
    while (due != kNone) {
      const auto of = static_cast<std::uint32_t>(due);
      due = next_[of];
      const WeightClass& its = classes_[of];
      if (its.members.empty()) continue;
      if (reaches_level_after(its, i)) {
        awake_.push_back({its.weight, its.drawn, of});
      } else {
        to_sleep(of, i);
      }
    }
  }

  // Few awake are soon too few, and many cost work at every place: as many as make choices about as
  // dear as looks. A level that has served for long is chosen again, with fewer.
  void adapt(std::size_t num_classes) {
    // A choice does to each class about what eight looks do.
    const std::size_t choice = 8 * num_classes;
    if (looked_ < choice) wanted_ = std::min(2 * wanted_, num_classes);
    if (looked_ > 4 * choice) wanted_ = std::max(wanted_ / 2, kFewestAwake);
    looked_ = 0;
    most_looks_ = 8 * choice;
  }

  // The lag of the wanted_-th class is the level.
  void choose_level(std::int64_t i, double at) {
    std::ranges::fill(wheel_, kNone);
    awake_.clear();
    lags_.clear();
    for (const WeightClass& its : classes_) {
      if (!its.members.empty()) lags_.push_back(lag_of(its.weight, its.drawn, at));
    }
    adapt(lags_.size());
    const std::size_t place = std::min(wanted_, lags_.size()) - 1;
    std::nth_element(lags_.begin(), lags_.begin() + static_cast<std::ptrdiff_t>(place), lags_.end(),
                     std::greater<>());
    level_ = lags_[place];
    for (std::uint32_t of = 0; of < classes_.size(); ++of) {
      const WeightClass& its = classes_[of];
      if (its.members.empty()) continue;
      if (lag_of(its.weight, its.drawn, at) >= level_) {
        awake_.push_back({its.weight, its.drawn, of});
      } else {
        to_sleep(of, i);
      }
    }
    most_awake_ = 4 * std::max(wanted_, awake_.size());
  }

  std::vector<WeightClass> classes_;
  std::vector<std::size_t> class_of_;  // of each member
  double level_ = 0;
  std::size_t wanted_ = kFewestAwake;  // awake when a level is chosen
  std::size_t most_awake_ = 0;         // for which the level is good
  std::size_t looked_ = 0;             // since it was chosen
  std::size_t most_looks_ = 0;
  std::vector<Awake> awake_;         // all whose lag reaches the level, and a few more
  std::vector<std::int32_t> wheel_;  // by place: the first class that wakes there
  std::vector<std::int32_t> next_;   // by class: the next one that wakes where it does
  std::vector<double> lags_;
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
