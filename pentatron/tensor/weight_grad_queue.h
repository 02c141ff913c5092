// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

namespace pentatron {

// To which part of a step postponed work belongs.
struct WeightGradKey {
  int unit = 0;  // of the model, as events count them
  int micro_batch = 0;
  int chunk = 0;  // of the pipeline stage
  bool operator==(const WeightGradKey&) const = default;
};

// Weight-gradient work of linear ops, postponed or done at once. Work of one key runs in the order
// in which it was put; keys run in whatever order a schedule asks for, the same on all ranks that
// share a weight, since work may call collectives.
class WeightGradQueue final {
 public:
  using Work = std::function<void()>;

  // postpone == false (the default): put() runs the work before it returns.
  void set_postpone(bool postpone) { postpone_ = postpone; }
  [[nodiscard]] bool postpone() const { return postpone_; }
  void put(const WeightGradKey& key, Work work);
  // Runs all postponed work, the oldest first; that of a key; that of a whole micro-batch of a
  // chunk, which is what a schedule's action for weights stands for. Listeners hear of each unit
  // that is done after its last entry.
  void drain();
  void drain(const WeightGradKey& key);
  void drain_micro_batch(int micro_batch, int chunk = 0);
  [[nodiscard]] std::size_t pending() const { return queue_.size(); }
  [[nodiscard]] std::size_t pending_of(int unit) const;

  // Units are done when nothing of theirs is left and work of micro-batch `last`, whose backward
  // comes last, has run since this call. Negative (the default): whenever nothing is left.
  void set_last_micro_batch(int last);
  // Called when postponed work has run and its unit is done, in the order of subscription. The
  // listener is heard as long as its handle lives.
  using Listener = std::function<void(int unit)>;
  [[nodiscard]] std::shared_ptr<const Listener> on_unit_done(Listener listener);

 private:
  struct Entry {
    WeightGradKey key;
    Work work;
  };
  template <typename Matches>
  void drain_where(const Matches& matches);
  [[nodiscard]] bool done(int unit) const;
  void tell_done(int unit) const;

  bool postpone_ = false;
  int last_ = -1;
  std::set<int> ran_last_;  // units of which work of the last micro-batch has run
  std::vector<std::weak_ptr<const Listener>> listeners_;
  std::deque<Entry> queue_;
};

}  // namespace pentatron
