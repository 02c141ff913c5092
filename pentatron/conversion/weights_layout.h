// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "pentatron/families/folder.h"

namespace pentatron::conversion {

// In which files of a Hugging Face folder the tensors stand, and in which order: the headers of its
// files, byte for byte. An import keeps this, so that an export writes the same files again.
struct WeightsLayout {
  struct File {
    std::string header;  // JSON and padding
    std::uint64_t data_bytes = 0;
  };
  std::map<std::string, File> files;
  std::string index;  // the text of model.safetensors.index.json; empty: there is one file
};

// Under which name a checkpoint keeps it beside its tokenizer.
inline constexpr const char* kWeightsLayoutFile = "weights_layout.json";

[[nodiscard]] WeightsLayout layout_of(const families::Folder& folder);
[[nodiscard]] std::string to_text(const WeightsLayout& layout);
// What to_text() wrote. Anything else, or names that are none of weight files: kData, naming
// `name`.
[[nodiscard]] WeightsLayout parse_weights_layout(const std::string& text, const std::string& name);

}  // namespace pentatron::conversion
