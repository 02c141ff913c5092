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
// that of the member whose turn it is. Small: a few thousand are to stay in a near cache.
struct WeightClass {
  double weight = 0;
  double places = 0;        // from one turn of a member to its next: 1 / weight
  double drawn = 0;         // samples of the member whose turn it is
  std::int32_t member = 0;  // whose turn it is
  std::uint32_t size = 0;   // members; 0: never picked again
};

// The members of a class.
struct Turns {
  std::vector<std::int32_t> members = {};  // ascending
  std::size_t next = 0;                    // whose turn it is
};

// Classes that sleep until a place, in lists by place; what is farther ahead than the wheel's
// `places` comes round early and is put back. A class is in one wheel at most.
template <std::int64_t places>
class PlaceWheel final {
 public:
  explicit PlaceWheel(std::size_t num_classes) : first_(places, kNone), next_(num_classes, kNone) {}

  void clear() { std::ranges::fill(first_, kNone); }
  // `ahead` places after `i`, at least one.
  void add(std::uint32_t of, std::int64_t i, double ahead) {
    const auto steps = static_cast<std::uint64_t>(std::clamp(ahead, 1.0, double{places - 1}));
    std::int32_t& first = first_[(static_cast<std::uint64_t>(i) + steps) % places];
    next_[of] = first;
    first = static_cast<std::int32_t>(of);
  }
  // Takes those of place `i` out and calls due(class) for each, which may add it again.
  template <typename F>
  void turn_to(std::int64_t i, F due) {
    std::int32_t at = std::exchange(first_[static_cast<std::uint64_t>(i) % places], kNone);
    while (at != kNone) {
      const auto of = static_cast<std::uint32_t>(at);
      at = next_[of];
      due(of);
    }
  }

 private:
  static constexpr std::int32_t kNone = -1;
  std::vector<std::int32_t> first_;  // by place
  std::vector<std::int32_t> next_;   // by class: the next one that wakes where it does
};

// Picks the member that lags behind most. Looking at all members for every place would take hours
// for thousands of them, so only the hot classes are looked at: those whose lag reaches a level
// just below the largest. When a class will reach a level is known from its weight; until then it
// sleeps in a wheel. Where the largest lag falls below the level, or many are above it, a new level
// is chosen. So that this takes no look at every class, there is a lower level, too: a hot level is
// chosen among the warm classes, which reach the lower one, and the lower one, seldom, among all.
class LagPicker final {
 public:
  explicit LagPicker(std::span<const double> weights) {
    std::map<double, std::size_t> places;
    for (std::size_t member = 0; member < weights.size(); ++member) {
      const auto [at, fresh] = places.emplace(weights[member], classes_.size());
      const auto number = static_cast<std::int32_t>(member);
      if (fresh) {
        classes_.push_back(
            {.weight = weights[member], .places = 1 / weights[member], .member = number});
        turns_.emplace_back();
      }
      ++classes_[at->second].size;
      turns_[at->second].members.push_back(number);
      class_of_.push_back(at->second);
    }
    warm_wheel_ = PlaceWheel<kWarmPlaces>(classes_.size());
    cold_wheel_ = PlaceWheel<kColdPlaces>(classes_.size());
    place_in_warm_.resize(classes_.size());
  }

  struct Pick {
    std::size_t member;
    std::int64_t sample;
  };

  // For place `i`, which grows by one from call to call.
  Pick pick(std::int64_t i) {
    const auto at = static_cast<double>(std::max<std::int64_t>(i, 1));
    cold_wheel_.turn_to(i, [&](std::uint32_t of) { rise_from_cold(of, i); });
    warm_wheel_.turn_to(i, [&](std::uint32_t of) { rise_from_warm(of, i); });
    if (hot_.empty() || hot_.size() > most_hot_ || looked_ > most_looks_) choose_hot_level(i, at);
    Winner winner = largest(at);
    if (winner.lag < hot_level_) {
      choose_hot_level(i, at);
      winner = largest(at);
    }
    const std::uint32_t of = hot_[winner.place].of;
    WeightClass& chosen = classes_[of];
    const Pick pick{.member = static_cast<std::size_t>(chosen.member),
                    .sample = static_cast<std::int64_t>(chosen.drawn)};
    if (chosen.size == 1) {
      chosen.drawn += 1;
    } else {
      next_turn(of);
    }
    move_on(winner.place, i);
    return pick;
  }

  // Never picked again. Of the member of the last pick, or before the first.
  void retire(std::size_t member) {
    const std::size_t of = class_of_[member];
    WeightClass& its = classes_[of];
    Turns& turns = turns_[of];
    const auto found = std::ranges::lower_bound(turns.members, static_cast<std::int32_t>(member));
    const auto place = static_cast<std::size_t>(found - turns.members.begin());
    turns.members.erase(found);
    if (place < turns.next) --turns.next;
    // One that is warm or hot is found to be gone when a level is chosen.
    if (--its.size == 0) {
      most_hot_ = 0;
    } else {
      its.member = turns.members[turns.next];
    }
  }

 private:
  static constexpr std::int64_t kWarmPlaces = 1024;
  static constexpr std::int64_t kColdPlaces = 4096;
  static constexpr std::size_t kFewestHot = 4;
  static constexpr std::size_t kFewestWarm = 64;
  static constexpr double kRounding = 1e-12;  // share of a place, far above that of fp64

  // What is looked at of a hot class.
  struct Hot {
    double weight;
    double drawn;
    std::uint32_t of;  // its place in classes_
  };
  struct Winner {
    std::size_t place = 0;  // in hot_
    double lag = -std::numeric_limits<double>::infinity();
  };

  static double lag_of(double weight, double drawn, double at) { return weight * at - drawn; }
  static double lag_of(const WeightClass& its, double at) {
    return lag_of(its.weight, its.drawn, at);
  }

  void next_turn(std::uint32_t of) {
    WeightClass& its = classes_[of];
    Turns& turns = turns_[of];
    if (++turns.next == turns.members.size()) {
      turns.next = 0;
      its.drawn += 1;
    }
    its.member = turns.members[turns.next];
  }

  [[nodiscard]] std::int32_t member_at(std::size_t place) const {
    return classes_[hot_[place].of].member;
  }

  // The first member of equals.
  [[nodiscard]] Winner largest(double at) {
    looked_ += hot_.size();
    // Without branches: which of them is the largest so far, nothing foretells.
    double even = -std::numeric_limits<double>::infinity();
    double odd = even;
    std::size_t place = 0;
    for (; place + 1 < hot_.size(); place += 2) {
      even = std::max(even, lag_of(hot_[place].weight, hot_[place].drawn, at));
      odd = std::max(odd, lag_of(hot_[place + 1].weight, hot_[place + 1].drawn, at));
    }
    if (place < hot_.size())
      even = std::max(even, lag_of(hot_[place].weight, hot_[place].drawn, at));
    Winner winner{.place = hot_.size(), .lag = std::max(even, odd)};
    for (place = 0; place < hot_.size(); ++place) {
      if (lag_of(hot_[place].weight, hot_[place].drawn, at) != winner.lag) continue;
      if (winner.place == hot_.size() || member_at(place) < member_at(winner.place)) {
        winner.place = place;
      }
    }
    return winner;
  }

  // After the pick of place `i`: the class stays where its lag reaches.
  void move_on(std::size_t place, std::int64_t i) {
    const std::uint32_t of = hot_[place].of;
    const WeightClass& its = classes_[of];
    hot_[place].drawn = its.drawn;
    if (reaches_after(its, hot_level_, i)) return;
    hot_[place] = hot_.back();
    hot_.pop_back();
    if (reaches_after(its, warm_level_, i)) {
      warm_wheel_.add(of, i, places_until(its, hot_level_, i));
    } else {
      leave_warm(of);
      cold_wheel_.add(of, i, places_until(its, warm_level_, i));
    }
  }

  // Whether its lag may reach the level at the place after `i`, with room for rounding.
  static bool reaches_after(const WeightClass& its, double level, std::int64_t i) {
    const double next = static_cast<double>(i) + 1.0;
    return lag_of(its, next) >= level - kRounding * next;
  }
  // From `i` to where its lag reaches the level, or a little before: rounding.
  static double places_until(const WeightClass& its, double level, std::int64_t i) {
    constexpr double kEarly = 1e-6;  // places; level and samples drawn may nearly cancel
    const double reaches = (its.drawn + level) * its.places * (1 - kRounding) - kEarly;
    return reaches - static_cast<double>(i);
  }

  void rise_from_cold(std::uint32_t of, std::int64_t i) {
    const WeightClass& its = classes_[of];
    if (its.size == 0) return;
    if (!reaches_after(its, warm_level_, i)) {
      cold_wheel_.add(of, i, places_until(its, warm_level_, i));
      return;
    }
    join_warm(of);
    rise_from_warm(of, i);
  }
  void rise_from_warm(std::uint32_t of, std::int64_t i) {
    const WeightClass& its = classes_[of];
    if (its.size == 0) return;
    if (reaches_after(its, hot_level_, i)) {
      hot_.push_back({its.weight, its.drawn, of});
    } else {
      warm_wheel_.add(of, i, places_until(its, hot_level_, i));
    }
  }

  void join_warm(std::uint32_t of) {
    place_in_warm_[of] = static_cast<std::uint32_t>(warm_.size());
    warm_.push_back(of);
  }
  void leave_warm(std::uint32_t of) {
    const std::uint32_t place = place_in_warm_[of];
    warm_[place] = warm_.back();
    place_in_warm_[warm_[place]] = place;
    warm_.pop_back();
  }

  // Few above a level are soon too few, and many cost work: as many as make choices about as dear
  // as the work between them. `work` since the last choice, which itself is worth `choice`.
  static void adapt(std::size_t& wanted, std::size_t fewest, std::size_t most, std::size_t work,
                    std::size_t choice) {
    if (work < choice) wanted = std::min(2 * wanted, std::max(most, fewest));
    if (work > 4 * choice) wanted = std::max(wanted / 2, fewest);
  }

  // The `wanted`-th largest of lags_.
  double nth_lag(std::size_t wanted) {
    const auto nth =
        lags_.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, lags_.size()) - 1);
    std::nth_element(lags_.begin(), nth, lags_.end(), std::greater<>());
    return *nth;
  }

  // The lag of the wanted_warm_-th class of all.
  void choose_warm_level(std::int64_t i, double at) {
    lags_.clear();
    for (const WeightClass& its : classes_) {
      if (its.size > 0) lags_.push_back(lag_of(its, at));
    }
    adapt(wanted_warm_, kFewestWarm, lags_.size(), warm_work_, 2 * lags_.size());
    warm_work_ = 0;
    most_warm_work_ = 16 * lags_.size();
    warm_level_ = nth_lag(wanted_warm_);
    cold_wheel_.clear();
    warm_.clear();
    for (std::uint32_t of = 0; of < classes_.size(); ++of) {
      const WeightClass& its = classes_[of];
      if (its.size == 0) continue;
      if (lag_of(its, at) >= warm_level_) {
        join_warm(of);
      } else {
        cold_wheel_.add(of, i, places_until(its, warm_level_, i));
      }
    }
    most_warm_ = 2 * std::max(wanted_warm_, warm_.size());
  }

  // The lags of the warm classes that there are still; the largest of them.
  double collect_warm_lags(double at) {
    double most = -std::numeric_limits<double>::infinity();
    lags_.clear();
    for (std::size_t place = 0; place < warm_.size();) {
      const WeightClass& its = classes_[warm_[place]];
      if (its.size == 0) {
        leave_warm(warm_[place]);
        continue;
      }
      lags_.push_back(lag_of(its, at));
      most = std::max(most, lags_.back());
      ++place;
    }
    return most;
  }

  // The lag of the wanted_hot_-th warm class, unless the warm level is above.
  void choose_hot_level(std::int64_t i, double at) {
    warm_work_ += warm_.size();
    const double most = collect_warm_lags(at);
    if (lags_.empty() || most < warm_level_ || warm_.size() > most_warm_ ||
        warm_work_ > most_warm_work_) {
      choose_warm_level(i, at);
      collect_warm_lags(at);
    }
    adapt(wanted_hot_, kFewestHot, lags_.size(), looked_, 4 * lags_.size());
    looked_ = 0;
    most_looks_ = 32 * lags_.size();
    hot_level_ = std::max(nth_lag(wanted_hot_), warm_level_);
    warm_wheel_.clear();
    hot_.clear();
    for (const std::uint32_t of : warm_) {
      const WeightClass& its = classes_[of];
      if (lag_of(its, at) >= hot_level_) {
        hot_.push_back({its.weight, its.drawn, of});
      } else {
        warm_wheel_.add(of, i, places_until(its, hot_level_, i));
      }
    }
    most_hot_ = 4 * std::max(wanted_hot_, hot_.size());
  }

  std::vector<WeightClass> classes_;
  std::vector<Turns> turns_;           // by class
  std::vector<std::size_t> class_of_;  // of each member
  double hot_level_ = 0;
  double warm_level_ = 0;
  std::vector<Hot> hot_;                      // all whose lag reaches the hot level, and a few more
  std::vector<std::uint32_t> warm_;           // the same of the warm level, the hot ones among them
  std::vector<std::uint32_t> place_in_warm_;  // by class
  PlaceWheel<kWarmPlaces> warm_wheel_{0};     // the others of warm_, until the hot level
  PlaceWheel<kColdPlaces> cold_wheel_{0};     // all others, until the warm level
  std::size_t wanted_hot_ = kFewestHot;       // when a level is chosen
  std::size_t wanted_warm_ = kFewestWarm;
  std::size_t most_hot_ = 0;  // for which the level is good
  std::size_t most_warm_ = 0;
  std::size_t most_looks_ = 0;
  std::size_t most_warm_work_ = 0;
  std::size_t looked_ = 0;     // at hot ones, since their level was chosen
  std::size_t warm_work_ = 0;  // looks at warm ones, since theirs was
  std::vector<double> lags_;
};

// Collects what is drawn, and hands it on in pieces that a core's cache holds.
class BlockWriter final {
 public:
  explicit BlockWriter(const BlendBlock& put) : put_(put) {
    members_.reserve(kValues);
    samples_.reserve(kValues);
  }
  void add(std::size_t member, std::int64_t sample) {
    members_.push_back(static_cast<std::int16_t>(member));
    samples_.push_back(sample);
    if (members_.size() == kValues) flush();
  }
  void flush() {
    if (!members_.empty()) put_(members_, samples_);
    members_.clear();
    samples_.clear();
  }

 private:
  static constexpr std::size_t kValues = std::size_t{1} << 14;

  const BlendBlock& put_;
  std::vector<std::int16_t> members_;
  std::vector<std::int64_t> samples_;
};

// All that is drawn, in memory.
template <typename Draw>
BlendIndex collect(std::int64_t size, Draw draw) {
  BlendIndex index;
  index.members.reserve(static_cast<std::size_t>(size));
  index.samples.reserve(static_cast<std::size_t>(size));
  draw([&](std::span<const std::int16_t> members, std::span<const std::int64_t> samples) {
    index.members.insert(index.members.end(), members.begin(), members.end());
    index.samples.insert(index.samples.end(), samples.begin(), samples.end());
  });
  return index;
}

}  // namespace

void draw_blend_index(std::span<const double> weights, std::int64_t size, const BlendBlock& put) {
  LagPicker picker(weights);
  BlockWriter out(put);
  for (std::int64_t i = 0; i < size; ++i) {
    const auto [member, sample] = picker.pick(i);
    out.add(member, sample);
  }
  out.flush();
}

BlendIndex build_blend_index(std::span<const double> weights, std::int64_t size) {
  return collect(size, [&](const BlendBlock& put) { draw_blend_index(weights, size, put); });
}

void draw_exhaustive_blend_index(std::span<const std::int64_t> sizes, const BlendBlock& put) {
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  std::vector<double> weights;
  for (const std::int64_t size : sizes) {
    weights.push_back(static_cast<double>(size) / static_cast<double>(total));
  }
  LagPicker picker(weights);
  for (std::size_t member = 0; member < sizes.size(); ++member) {
    if (sizes[member] == 0) picker.retire(member);
  }
  BlockWriter out(put);
  for (std::int64_t i = 0; i < total; ++i) {
    const auto [member, sample] = picker.pick(i);
    out.add(member, sample);
    if (sample + 1 == sizes[member]) picker.retire(member);
  }
  out.flush();
}

BlendIndex build_exhaustive_blend_index(std::span<const std::int64_t> sizes) {
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  return collect(total, [&](const BlendBlock& put) { draw_exhaustive_blend_index(sizes, put); });
}

}  // namespace pentatron::datasets
