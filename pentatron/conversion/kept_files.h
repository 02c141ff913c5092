// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "pentatron/checkpoint/reader.h"
#include "pentatron/config/config.h"

namespace pentatron::conversion {

// Kind of the tensors of bytes in which a checkpoint keeps files.
inline constexpr std::string_view kFileKind = "file";

// Files by name, all small enough for memory.
using Files = std::map<std::string, std::string>;

// Those that an imported checkpoint keeps.
[[nodiscard]] Files files_in_checkpoint(checkpoint::CheckpointReader& reader);
// families::kept_files() of a folder.
[[nodiscard]] Files files_in_folder(const std::filesystem::path& folder);
// Those of the tokenizer that a run was trained with, as far as they are still where they were.
[[nodiscard]] Files tokenizer_files(const config::DataConfig& data);

}  // namespace pentatron::conversion
