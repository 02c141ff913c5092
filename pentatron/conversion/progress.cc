// SPDX-License-Identifier: Apache-2.0
#include "pentatron/conversion/progress.h"

#include "pentatron/base/log.h"

namespace pentatron::conversion {

void Progress::add(std::int64_t bytes) {
  constexpr double kEverySeconds = 3.0;
  constexpr double kGb = 1e9;
  done_ += bytes;
  if (timer_.seconds() - told_ < kEverySeconds) return;
  told_ = timer_.seconds();
  log::info("{} {:.2f} of {:.2f} GB", what_, static_cast<double>(done_) / kGb,
            static_cast<double>(expected_) / kGb);
}

}  // namespace pentatron::conversion
