// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/mapped_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace pentatron {

void release_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t end = (begin + bytes.size()) / page * page;
  if (end <= first) return;
  // Of a map that is only read, so nothing is lost; its failure costs memory only.
  static_cast<void>(::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED));
}

}  // namespace pentatron
