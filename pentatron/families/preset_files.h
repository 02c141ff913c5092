// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace pentatron::families {

struct EmbeddedFile {
  std::string_view name;  // "llama.json"
  std::string_view content;
};

// The families' files of presets, put into the library when it is built (cmake/embed.cmake).
[[nodiscard]] std::span<const EmbeddedFile> preset_files();

}  // namespace pentatron::families
