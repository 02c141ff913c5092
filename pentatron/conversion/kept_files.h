// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "pentatron/checkpoint/reader.h"
#include "pentatron/config/config.h"

namespace pentatron::conversion {

// Files by name, all small enough for memory.
using Files = std::map<std::string, std::string>;

// Those in a checkpoint's folder "tokenizer", checked, under the names that Hugging Face's folders
// have for them; of manifests of version 1 also the tensors of bytes in which an import kept files.
[[nodiscard]] Files files_in_checkpoint(checkpoint::CheckpointReader& reader,
                                        const std::filesystem::path& folder,
                                        const std::string& tokenizer_type);
// families::kept_files() of a folder.
[[nodiscard]] Files files_in_folder(const std::filesystem::path& folder);
// What an import keeps: the files of the tokenizer under the names that
// tokenizers::use_saved_files() looks for, and those of the folder that are not among them. By
// name.
[[nodiscard]] Files files_to_keep(const std::filesystem::path& folder,
                                  const config::DataConfig& data);

}  // namespace pentatron::conversion
