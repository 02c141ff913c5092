// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>

#include "pentatron/base/error.h"

namespace pentatron::test_support {

// The repository's root: PENTATRON_SOURCE_DIR (CTest sets it), or the nearest folder above the
// current one that holds the modules.
inline std::filesystem::path source_dir() {
  if (const char* root = std::getenv("PENTATRON_SOURCE_DIR"); root != nullptr) return root;
  std::filesystem::path folder = std::filesystem::current_path();
  while (!std::filesystem::exists(folder / "pentatron" / "base")) {
    PENTATRON_CHECK(folder.has_relative_path(), kConfig,
                    "run this test inside the repository or set PENTATRON_SOURCE_DIR");
    folder = folder.parent_path();
  }
  return folder;
}

}  // namespace pentatron::test_support
