// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/transport.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::pipeline_parallel {
namespace {

void wait_all(std::vector<comm::WorkPtr>& works) {
  for (comm::WorkPtr& work : works) work->wait();
  works.clear();
}

}  // namespace

void SendQueue::post(comm::Group& group, int peer, const MessageKey& key,
                     std::vector<Tensor> tensors) {
  Message entry{key, std::move(tensors), {}};
  for (const Tensor& t : entry.tensors) entry.works.push_back(group.send(t, peer));
  sent_.push_back(std::move(entry));
}

void SendQueue::poll() {
  std::erase_if(sent_, [](Message& entry) {
    const bool ended = std::all_of(entry.works.begin(), entry.works.end(),
                                   [](const comm::WorkPtr& work) { return work->finished(); });
    // Nothing is left to wait for: this lets the backend forget the operation.
    if (ended) wait_all(entry.works);
    return ended;
  });
}

void SendQueue::answered(const MessageKey& key) {
  const auto found = std::find_if(sent_.begin(), sent_.end(),
                                  [&](const Message& entry) { return entry.key == key; });
  if (found == sent_.end()) return;
  wait_all(found->works);
  sent_.erase(found);
}

void SendQueue::shrink_to(std::size_t count) {
  while (sent_.size() > count) {
    wait_all(sent_.front().works);
    sent_.pop_front();
  }
}

void ReceiveQueue::post_ahead(comm::Group& group, int peer, std::size_t count, const Make& make) {
  while (posted_.size() < count && !ahead_.empty()) {
    Message next{ahead_.front(), make(ahead_.front()), {}};
    ahead_.pop_front();
    for (const Tensor& t : next.tensors) next.works.push_back(group.recv_later(t, peer));
    posted_.push_back(std::move(next));
  }
}

std::vector<Tensor> ReceiveQueue::take(const MessageKey& key) {
  PENTATRON_CHECK(!posted_.empty() && posted_.front().key == key, kInternal,
                  "micro-batch {} of chunk {} is received out of the order of the schedule",
                  key.micro_batch, key.chunk);
  Message oldest = std::move(posted_.front());
  posted_.pop_front();
  wait_all(oldest.works);
  return std::move(oldest.tensors);
}

}  // namespace pentatron::pipeline_parallel
