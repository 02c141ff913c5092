// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/temp_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "pentatron/base/error.h"

namespace pentatron {

TempFolder::TempFolder(std::string_view prefix) {
  std::string name =
      (std::filesystem::temp_directory_path() / fmt::format("{}.XXXXXX", prefix)).string();
  PENTATRON_CHECK(::mkdtemp(name.data()) != nullptr, kIo, "cannot create a folder {}: {}", name,
                  std::generic_category().message(errno));
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace pentatron
