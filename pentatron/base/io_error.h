// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>
#include <system_error>

#include "pentatron/base/error.h"

namespace pentatron {

// ErrorKind::kIo "cannot WHAT PATH: the system's words for `code`"; `code` is an errno value.
[[noreturn]] inline void throw_io_error(std::string_view what, const std::filesystem::path& path,
                                        int code) {
  PENTATRON_THROW(kIo, "cannot {} {}: {}", what, path.string(),
                  std::generic_category().message(code));
}

}  // namespace pentatron
