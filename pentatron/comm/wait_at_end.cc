// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/wait_at_end.h"

#include "pentatron/base/log.h"

namespace pentatron::comm {

void WaitAtEnd::operator()(Work& work) const {
  if (std::uncaught_exceptions() > exceptions_) return;
  try {
    work.wait();
  } catch (const std::exception& error) {
    log::warn("an unfinished operation was dropped: {}", error.what());
  }
}

}  // namespace pentatron::comm
