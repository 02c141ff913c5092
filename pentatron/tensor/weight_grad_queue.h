// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>

namespace pentatron {

// Weight-gradient work of linear ops, postponed or done at once. Work of one weight runs in the
// order in which it was put.
class WeightGradQueue final {
 public:
  using Work = std::function<void()>;

  // postpone == false (the default): put() runs the work before it returns.
  void set_postpone(bool postpone) { postpone_ = postpone; }
  [[nodiscard]] bool postpone() const { return postpone_; }
  // `layer`: global layer number, -1 for what stands outside the layers.
  void put(int layer, Work work);
  // Runs the postponed work of the oldest `count` entries (all by default) and calls on_done(layer)
  // after each layer's last.
  void drain(std::size_t count = static_cast<std::size_t>(-1));
  [[nodiscard]] std::size_t pending() const { return queue_.size(); }
  [[nodiscard]] std::size_t pending_of(int layer) const;
  // Called after a postponed entry ran and no other entry of its layer is left.
  std::function<void(int layer)> on_layer_done;

 private:
  struct Entry {
    int layer;
    Work work;
  };
  bool postpone_ = false;
  std::deque<Entry> queue_;
};

}  // namespace pentatron
