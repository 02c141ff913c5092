// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>

#include "pentatron/distributed/store_env.h"

namespace pentatron::distributed {

// How a store brings gradients to their final sums, in a step of several micro-batches. Sums only:
// the loss is divided by the global count of valid tokens before. Every rank of a group starts the
// same collectives in the same order.
class GradientPath {
 public:
  virtual ~GradientPath() = default;
  virtual void begin_step() { in_last_micro_batch_.clear(); }
  // The units [first_unit, end_unit) are in their last micro-batch: its backward comes next.
  void begin_last_micro_batch(int first_unit, int end_unit) {
    for (int unit = first_unit; unit < end_unit; ++unit) in_last_micro_batch_.insert(unit);
  }
  // Nothing will write into the unit's gradients before the next micro-batch.
  virtual void unit_done(int unit) = 0;
  // Starts what has not started and waits for all; a gradient that nothing wrote is zero.
  virtual void finish_step() = 0;
  // Binds a gradient buffer that is not there all the time.
  virtual void provide(nn::Parameter& parameter) = 0;
  // The final gradients of this rank: flat elements [begin, begin + length) of its own ranges.
  [[nodiscard]] virtual Tensor final_range(std::size_t bucket, std::int64_t begin,
                                           std::int64_t length) const = 0;

 protected:
  [[nodiscard]] bool in_last_micro_batch(int unit) const {
    return in_last_micro_batch_.contains(unit);
  }

 private:
  std::set<int> in_last_micro_batch_;  // units
};

// One buffer of whole gradients, reduced once, in the last micro-batch: a bucket starts when all
// its units are done there, strictly in the order of the buckets, while backward goes on.
// All-reduce where nothing is sharded, else reduce-scatter (then only the own ranges are final).
[[nodiscard]] std::unique_ptr<GradientPath> make_whole_gradients(StoreEnv& env);

// Whole gradients live for a micro-batch and a unit; each is reduce-scattered when its units are
// done and added to this rank's shard.
[[nodiscard]] std::unique_ptr<GradientPath> make_sharded_gradients(StoreEnv& env);

}  // namespace pentatron::distributed
