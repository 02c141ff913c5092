// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string_view>
#include <vector>

#include "pentatron/comm/group.h"

// How bundles travel between the stages of a pipeline: queues of sends and receives of one rank.
namespace pentatron::pipeline_parallel {

// Lane of a trace: each received message from its posting to its use, named by its action.
inline constexpr std::string_view kMessageLane = "messages";

// The action of the list that a message belongs to.
struct MessageKey {
  int chunk = 0;
  int micro_batch = 0;
  int edge = 0;
  auto operator<=>(const MessageKey&) const = default;
};

// A message under way: its tensors, and an operation for each.
struct Message {
  MessageKey key;
  std::vector<Tensor> tensors;
  std::vector<comm::WorkPtr> works;
};

// Sends of one direction to one peer. A send ends when the peer has received it; its tensors live
// here until then.
class SendQueue final {
 public:
  void post(comm::Group& group, int peer, const MessageKey& key, std::vector<Tensor> tensors);
  // Lets go of what has ended, without waiting.
  void poll();
  // This message's answer has come, so it has ended.
  void answered(const MessageKey& key);
  // Waits for the oldest until no more are under way.
  void shrink_to(std::size_t count);

 private:
  std::deque<Message> sent_;
};

// Receives of one direction from one peer, posted ahead in the order of the list.
class ReceiveQueue final {
 public:
  // Makes the tensors that a message is received into.
  using Make = std::function<std::vector<Tensor>(const MessageKey&)>;

  // In the order of the list, before the first take().
  void expect(const MessageKey& key) { ahead_.push_back(key); }
  // Posts until `count` are under way.
  void post_ahead(comm::Group& group, int peer, std::size_t count, const Make& make);
  // Waits for the oldest, which must be `key`: kInternal otherwise.
  [[nodiscard]] std::vector<Tensor> take(const MessageKey& key);

 private:
  std::deque<MessageKey> ahead_;
  std::deque<Message> posted_;
};

}  // namespace pentatron::pipeline_parallel
