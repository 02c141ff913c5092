// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/batch_plan.h"

#include "pentatron/base/error.h"

namespace pentatron::datasets {

void BatchPlan::check_rank(std::int64_t consumed, std::int64_t dp_rank) const {
  PENTATRON_CHECK(consumed >= 0 && dp_rank >= 0 && dp_rank < dp_size_, kInternal,
                  "micro-batches of dp rank {} of {} after {} samples", dp_rank, dp_size_,
                  consumed);
}

}  // namespace pentatron::datasets
