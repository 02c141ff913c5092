// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/loaded_library.h"

#include <dlfcn.h>

#include <filesystem>

#include "pentatron/base/error.h"

namespace pentatron {

void* symbol_of_library(const std::string& file, const char* symbol, const std::string& purpose) {
  Dl_info info{};
  std::filesystem::path path = file;
  if (::dladdr(reinterpret_cast<const void*>(&symbol_of_library), &info) != 0) {
    path = std::filesystem::path(info.dli_fname).parent_path() / file;
  }
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* problem = handle == nullptr ? ::dlerror() : nullptr;
  PENTATRON_CHECK(handle != nullptr, kUnsupported, "{} needs {} beside libpentatron.so: {}",
                  purpose, file, problem == nullptr ? "unknown reason" : problem);
  void* found = ::dlsym(handle, symbol);
  PENTATRON_CHECK(found != nullptr, kInternal, "{} is another version's: it has no {}", file,
                  symbol);
  return found;
}

}  // namespace pentatron
