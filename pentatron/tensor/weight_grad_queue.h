// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

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
  // Runs the postponed work of the oldest `count` entries (all by default) and tells the
  // listeners after each layer's last.
  void drain(std::size_t count = static_cast<std::size_t>(-1));
  [[nodiscard]] std::size_t pending() const { return queue_.size(); }
  [[nodiscard]] std::size_t pending_of(int layer) const;
  // Called after a postponed entry ran and no other entry of its layer is left, in the order of
  // subscription. The listener is heard as long as its handle lives.
  using Listener = std::function<void(int layer)>;
  [[nodiscard]] std::shared_ptr<const Listener> on_layer_done(Listener listener);

 private:
  struct Entry {
    int layer;
    Work work;
  };
  void tell_layer_done(int layer) const;

  bool postpone_ = false;
  std::vector<std::weak_ptr<const Listener>> listeners_;
  std::deque<Entry> queue_;
};

}  // namespace pentatron
