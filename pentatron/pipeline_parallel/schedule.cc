// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/schedule.h"

#include <algorithm>
#include <deque>

#include "pentatron/base/error.h"

namespace pentatron::pipeline_parallel {
namespace {

void check_shape(const ScheduleShape& shape) {
  PENTATRON_CHECK(shape.num_stages >= 1 && shape.num_micro_batches >= 1, kConfig,
                  "a schedule needs at least one stage and one micro-batch, not {} stages "
                  "(--pipeline-model-parallel-size) and {} micro-batches (--global-batch-size)",
                  shape.num_stages, shape.num_micro_batches);
}

// Writes one rank's list; knows where the neighbours are.
class Writer {
 public:
  Writer(const ScheduleShape& shape, int rank)
      : has_previous_(rank > 0), has_next_(rank + 1 < shape.num_stages) {}

  void forward(int micro_batch) {
    if (has_previous_) put(ActionKind::kRecvForward, micro_batch);
    put(ActionKind::kForward, micro_batch);
    if (has_next_) put(ActionKind::kSendForward, micro_batch);
  }
  void backward(int micro_batch) {
    if (has_next_) put(ActionKind::kRecvBackward, micro_batch);
    put(ActionKind::kBackward, micro_batch);
    if (has_previous_) put(ActionKind::kSendBackward, micro_batch);
  }
  void backward_weight(int micro_batch) { put(ActionKind::kBackwardWeight, micro_batch); }
  [[nodiscard]] ActionList take() { return std::move(list_); }

 private:
  void put(ActionKind kind, int micro_batch) { list_.push_back({kind, micro_batch, 0}); }

  bool has_previous_;
  bool has_next_;
  ActionList list_;
};

// Forwards that a rank runs before its first backward: the later stages' distance to the end.
int num_warmup(const ScheduleShape& shape, int rank) {
  return std::min(shape.num_stages - 1 - rank, shape.num_micro_batches);
}

}  // namespace

std::string_view to_string(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kBackwardWeight:
      return "backward-weight";
    case ActionKind::kSendForward:
      return "send-forward";
    case ActionKind::kRecvForward:
      return "recv-forward";
    case ActionKind::kSendBackward:
      return "send-backward";
    case ActionKind::kRecvBackward:
      return "recv-backward";
  }
  return "unknown";
}

StageGraph chain_graph(int num_stages) {
  StageGraph graph;
  for (int stage = 0; stage < num_stages; ++stage) {
    StagePeers peers;
    if (stage > 0) peers.previous.push_back(stage - 1);
    if (stage + 1 < num_stages) peers.next.push_back(stage + 1);
    graph.push_back(std::move(peers));
  }
  return graph;
}

std::vector<ActionList> one_forward_one_backward(const ScheduleShape& shape) {
  check_shape(shape);
  std::vector<ActionList> lists;
  for (int rank = 0; rank < shape.num_stages; ++rank) {
    Writer writer(shape, rank);
    const int warmup = num_warmup(shape, rank);
    for (int i = 0; i < warmup; ++i) writer.forward(i);
    for (int i = warmup; i < shape.num_micro_batches; ++i) {
      writer.forward(i);
      writer.backward(i - warmup);
    }
    for (int i = shape.num_micro_batches - warmup; i < shape.num_micro_batches; ++i) {
      writer.backward(i);
    }
    lists.push_back(writer.take());
  }
  return lists;
}

std::vector<ActionList> forward_only(const ScheduleShape& shape) {
  check_shape(shape);
  std::vector<ActionList> lists;
  for (int rank = 0; rank < shape.num_stages; ++rank) {
    Writer writer(shape, rank);
    for (int i = 0; i < shape.num_micro_batches; ++i) writer.forward(i);
    lists.push_back(writer.take());
  }
  return lists;
}

std::vector<ActionList> one_forward_one_backward_split_weight(const ScheduleShape& shape) {
  check_shape(shape);
  std::vector<ActionList> lists;
  for (int rank = 0; rank < shape.num_stages; ++rank) {
    Writer writer(shape, rank);
    const int warmup = num_warmup(shape, rank);
    std::deque<int> postponed;
    const auto run_oldest = [&] {
      writer.backward_weight(postponed.front());
      postponed.pop_front();
    };
    for (int i = 0; i < warmup; ++i) writer.forward(i);
    for (int i = warmup; i < shape.num_micro_batches; ++i) {
      writer.forward(i);
      writer.backward(i - warmup);
      postponed.push_back(i - warmup);
      // A later stage holds fewer forwards in flight, by exactly its rank: it may postpone that
      // many without holding more than the first stage does.
      if (static_cast<int>(postponed.size()) > rank) run_oldest();
    }
    for (int i = shape.num_micro_batches - warmup; i < shape.num_micro_batches; ++i) {
      writer.backward(i);
      postponed.push_back(i);
      run_oldest();
    }
    while (!postponed.empty()) run_oldest();
    lists.push_back(writer.take());
  }
  return lists;
}

}  // namespace pentatron::pipeline_parallel
