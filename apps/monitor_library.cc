// SPDX-License-Identifier: Apache-2.0
#include "apps/monitor_library.h"

#include <dlfcn.h>

#include "pentatron/base/error.h"

namespace pentatron::apps {

const monitor::Library& load_monitor_library() {
  // Never unloaded: its threads and exceptions may outlive any scope.
  void* handle = ::dlopen("libpentatron_monitor.so", RTLD_NOW | RTLD_LOCAL);
  const char* problem = handle == nullptr ? ::dlerror() : nullptr;
  PENTATRON_CHECK(handle != nullptr, kUnsupported,
                  "plot and watch need libpentatron_monitor.so beside libpentatron.so: {}",
                  problem == nullptr ? "unknown reason" : problem);
  void* symbol = ::dlsym(handle, "pentatron_monitor_library");
  PENTATRON_CHECK(symbol != nullptr, kInternal, "libpentatron_monitor.so is another version's");
  return *reinterpret_cast<decltype(&pentatron_monitor_library)>(symbol)();
}

}  // namespace pentatron::apps
