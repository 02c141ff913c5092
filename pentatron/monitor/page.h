// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace pentatron::monitor {

struct EmbeddedFile {
  std::string_view name;
  std::string_view content;
};

// The files of page/, put into the program when it is built (cmake/embed.cmake).
[[nodiscard]] std::span<const EmbeddedFile> page_files();

}  // namespace pentatron::monitor
