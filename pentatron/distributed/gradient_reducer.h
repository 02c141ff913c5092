// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "pentatron/base/timer.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/distributed/flat_buffer.h"
#include "pentatron/ops/unit_events.h"
#include "pentatron/tensor/weight_grad_queue.h"

namespace pentatron::distributed {

// Brings gradients to their final sums after the micro-batches of a step: first over each part's
// partial_grad_axes and the holders of tied weights, then over the buffer's reduction_axes (sum, no
// division: the loss is already divided by the global valid count). With `sharded`, buckets are
// reduce-scattered and only shard_range() is final. Sums are made in policy.reduction. Listens to
// unit events; a bucket starts when the last micro-batch's weights_done of all its units has
// come, and travels beside the rest of backward. One with a tied weight starts in finish_step().
// All ranks start the same buckets in the same order.
//
// A sharded buffer that is cut for another number of ranks, or two tied parts of one name:
// kInternal. A peer's failure: kComm.
class GradientReducer final : public ops::UnitEventSink {
 public:
  GradientReducer(FlatBuffer& buffer, comm::ParallelContext& context, bool sharded,
                  const PrecisionPolicy& policy);
  ~GradientReducer() override;

  // Listens to the queue's on_unit_done (beside others) and takes no unit for done while it has
  // work there. Needed where the queue postpones; the queue must live as long as unit events come.
  void listen_to(WeightGradQueue& queue);
  void set_timers(Timers* timers);  // null: none
  void begin_step();                // parameters: next write overwrites
  // From now on weights_done of the units [first_unit, end_unit) starts buckets: the last
  // micro-batch of their stage begins its backward.
  void begin_last_micro_batch(int first_unit, int end_unit);
  void on_backward_end(int unit) override;
  void weights_done(int unit);
  // Starts what has not started, waits for all; every gradient that nothing wrote is zero.
  void finish_step();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pentatron::distributed
