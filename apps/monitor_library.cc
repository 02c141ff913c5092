// SPDX-License-Identifier: Apache-2.0
#include "apps/monitor_library.h"

#include "pentatron/base/loaded_library.h"

namespace pentatron::apps {

const monitor::Library& load_monitor_library() {
  void* const symbol =
      symbol_of_library("libpentatron_monitor.so", "pentatron_monitor_library", "plot and watch");
  return *reinterpret_cast<decltype(&pentatron_monitor_library)>(symbol)();
}

}  // namespace pentatron::apps
