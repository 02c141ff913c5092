// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/schedule.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/pipeline_parallel/schedule_writer.h"

namespace pentatron::pipeline_parallel {

void check_shape(const ScheduleShape& shape, bool chunks) {
  PENTATRON_CHECK(shape.num_ranks >= 1 && shape.num_micro_batches >= 1 && shape.num_chunks >= 1,
                  kConfig,
                  "a schedule needs at least one rank, micro-batch and chunk, not {} ranks "
                  "(--pipeline-model-parallel-size), {} micro-batches (--global-batch-size) and {} "
                  "chunks (--num-virtual-stages-per-pipeline-rank)",
                  shape.num_ranks, shape.num_micro_batches, shape.num_chunks);
  PENTATRON_CHECK(chunks || shape.num_chunks == 1, kConfig,
                  "this schedule runs one stage a rank, not {} "
                  "(--num-virtual-stages-per-pipeline-rank); 1f1b and gpipe run several",
                  shape.num_chunks);
}

namespace {

int group_size(const ScheduleShape& shape) {
  return shape.group_size > 0 ? shape.group_size : shape.num_ranks;
}

// The order in which every rank takes its forwards: a group of micro-batches through one chunk
// after the other.
std::vector<Turn> forward_turns(const ScheduleShape& shape) {
  std::vector<Turn> turns;
  const int group = group_size(shape);
  for (int begin = 0; begin < shape.num_micro_batches; begin += group) {
    const int end = std::min(begin + group, shape.num_micro_batches);
    for (int chunk = 0; chunk < shape.num_chunks; ++chunk) {
      for (int i = begin; i < end; ++i) turns.push_back({i, chunk});
    }
  }
  return turns;
}

// Backwards take the chunks from the end.
std::vector<Turn> backward_turns(const ScheduleShape& shape) {
  std::vector<Turn> turns = forward_turns(shape);
  for (Turn& turn : turns) turn.chunk = shape.num_chunks - 1 - turn.chunk;
  return turns;
}

// All forwards of a rank, and then, if asked, all of its backwards.
std::vector<ActionList> all_forwards(const ScheduleShape& shape, bool backwards) {
  check_shape(shape, /*chunks=*/true);
  std::vector<ActionList> lists;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    ScheduleWriter writer(shape, rank);
    for (const Turn& turn : forward_turns(shape)) writer.forward(turn);
    if (backwards) {
      for (const Turn& turn : backward_turns(shape)) writer.backward(turn);
    }
    lists.push_back(writer.take());
  }
  return lists;
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
    StageEdges edges;
    if (stage > 0) edges.previous.emplace_back(stage - 1);
    if (stage + 1 < num_stages) edges.next.emplace_back(stage + 1);
    graph.push_back(std::move(edges));
  }
  return graph;
}

std::vector<ActionList> one_forward_one_backward(const ScheduleShape& shape) {
  check_shape(shape, /*chunks=*/false);
  std::vector<ActionList> lists;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    ScheduleWriter writer(shape, rank);
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

std::vector<ActionList> interleaved_one_forward_one_backward(const ScheduleShape& shape) {
  check_shape(shape, /*chunks=*/true);
  const int group = group_size(shape);
  const int rest = shape.num_micro_batches % group;
  PENTATRON_CHECK(group >= shape.num_ranks, kConfig,
                  "--microbatch-group-size-per-virtual-pipeline-stage {} is below "
                  "--pipeline-model-parallel-size {}",
                  group, shape.num_ranks);
  PENTATRON_CHECK(rest == 0 || rest >= shape.num_ranks, kConfig,
                  "{} micro-batches in groups of {} "
                  "(--microbatch-group-size-per-virtual-pipeline-stage) leave {}: the rest must be "
                  "0 or at least --pipeline-model-parallel-size {}; change their number "
                  "(--global-batch-size; of plan_schedule --num-micro-batches)",
                  shape.num_micro_batches, group, rest, shape.num_ranks);
  const std::vector<Turn> forwards = forward_turns(shape);
  const std::vector<Turn> backwards = backward_turns(shape);
  const auto total = static_cast<int>(forwards.size());
  std::vector<ActionList> lists;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    ScheduleWriter writer(shape, rank);
    const int warmup =
        std::min(total, 2 * (shape.num_ranks - 1 - rank) + (shape.num_chunks - 1) * group);
    for (int i = 0; i < total + warmup; ++i) {
      if (i < total) writer.forward(forwards[static_cast<std::size_t>(i)]);
      if (i >= warmup) writer.backward(backwards[static_cast<std::size_t>(i - warmup)]);
    }
    lists.push_back(writer.take());
  }
  return lists;
}

std::vector<ActionList> gpipe(const ScheduleShape& shape) { return all_forwards(shape, true); }

std::vector<ActionList> forward_only(const ScheduleShape& shape) {
  return all_forwards(shape, false);
}

}  // namespace pentatron::pipeline_parallel
