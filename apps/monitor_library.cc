// SPDX-License-Identifier: Apache-2.0
#include "apps/monitor_library.h"

#include <dlfcn.h>

#include <filesystem>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"

namespace pentatron::apps {
namespace {

// By its whole path: a bare name is looked up as whoever calls dlopen asks, which a sanitiser may
// do for us.
std::filesystem::path beside_the_library(const char* name) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&log::print_line), &info) == 0) return name;
  return std::filesystem::path(info.dli_fname).parent_path() / name;
}

}  // namespace

const monitor::Library& load_monitor_library() {
  // Never unloaded: its threads and exceptions may outlive any scope.
  const std::filesystem::path path = beside_the_library("libpentatron_monitor.so");
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* problem = handle == nullptr ? ::dlerror() : nullptr;
  PENTATRON_CHECK(handle != nullptr, kUnsupported,
                  "plot and watch need libpentatron_monitor.so beside libpentatron.so: {}",
                  problem == nullptr ? "unknown reason" : problem);
  void* symbol = ::dlsym(handle, "pentatron_monitor_library");
  PENTATRON_CHECK(symbol != nullptr, kInternal, "libpentatron_monitor.so is another version's");
  return *reinterpret_cast<decltype(&pentatron_monitor_library)>(symbol)();
}

}  // namespace pentatron::apps
