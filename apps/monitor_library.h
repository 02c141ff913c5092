// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/monitor/library.h"

namespace pentatron::apps {

// Loads libpentatron_monitor.so, which stands beside libpentatron.so; kUnsupported when it is
// missing.
[[nodiscard]] const monitor::Library& load_monitor_library();

}  // namespace pentatron::apps
