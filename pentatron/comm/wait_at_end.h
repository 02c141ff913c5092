// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include "pentatron/comm/group.h"

namespace pentatron::comm {

// For the destructor of an operation that is made of others: what was dropped is waited for, and
// an error is logged. Not while an exception passes that came after the operation was begun: the
// inner operations know what to do then.
class WaitAtEnd final {
 public:
  void operator()(Work& work) const;

 private:
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace pentatron::comm
