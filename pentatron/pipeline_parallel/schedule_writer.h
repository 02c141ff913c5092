// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include "pentatron/pipeline_parallel/schedule.h"

// What the schedules are written with.
namespace pentatron::pipeline_parallel {

// Sizes below 1, or several chunks where `chunks` is false: kConfig.
void check_shape(const ScheduleShape& shape, bool chunks);

// Forwards of 1F1B that a rank runs before its first backward: its distance to the last stage.
[[nodiscard]] inline int num_warmup(const ScheduleShape& shape, int rank) {
  return std::min(shape.num_ranks - 1 - rank, shape.num_micro_batches);
}

// A micro-batch on one of the rank's stages.
struct Turn {
  int micro_batch;
  int chunk = 0;
};

// Writes one rank's list: work, and the messages that it needs and makes, since it knows where the
// neighbours are.
class ScheduleWriter final {
 public:
  // `shape` outlives the writer.
  ScheduleWriter(const ScheduleShape& shape, int rank) : shape_(shape), rank_(rank) {}

  void forward(Turn turn) {
    if (stage(turn) > 0) put(ActionKind::kRecvForward, turn);
    put(ActionKind::kForward, turn);
    if (has_next(turn)) put(ActionKind::kSendForward, turn);
  }
  void backward(Turn turn) {
    if (has_next(turn)) put(ActionKind::kRecvBackward, turn);
    put(ActionKind::kBackward, turn);
    if (stage(turn) > 0) put(ActionKind::kSendBackward, turn);
  }
  void forward(int micro_batch) { forward(Turn{micro_batch}); }
  void backward(int micro_batch) { backward(Turn{micro_batch}); }
  void backward_weight(int micro_batch) { put(ActionKind::kBackwardWeight, Turn{micro_batch}); }
  [[nodiscard]] ActionList take() { return std::move(list_); }

 private:
  [[nodiscard]] int stage(Turn turn) const { return turn.chunk * shape_.num_ranks + rank_; }
  [[nodiscard]] bool has_next(Turn turn) const {
    return stage(turn) + 1 < shape_.num_ranks * shape_.num_chunks;
  }
  void put(ActionKind kind, Turn turn) { list_.push_back({kind, turn.micro_batch, turn.chunk}); }

  const ScheduleShape& shape_;
  int rank_;
  ActionList list_;
};

}  // namespace pentatron::pipeline_parallel
