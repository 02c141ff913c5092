// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Names in a --save folder, shared by the files that find, replace and remove; not for other
// modules.
namespace pentatron::checkpoint {

inline constexpr std::string_view kSavingPrefix = ".saving_";
inline constexpr std::string_view kOldPrefix = ".old_";
inline constexpr std::string_view kTokenizerFolder = "tokenizer";  // inside an iteration's

// "iter_0000010" (after `prefix`) -> 10; other names: nothing.
[[nodiscard]] std::optional<std::int64_t> iteration_of(std::string_view name,
                                                       std::string_view prefix = {});

// Names in a folder, sorted; kIo error when it cannot be listed.
[[nodiscard]] std::vector<std::string> names_in(const std::filesystem::path& folder);

// A file, a folder or a link, even to nothing, has this name.
[[nodiscard]] bool name_is_taken(const std::filesystem::path& path);

// Whether a folder was written by Pentatron, whole or damaged, so that it may be replaced: nothing
// but shards and a manifest in it, or a manifest that reads as ours. Files and links are not.
[[nodiscard]] bool is_own_checkpoint(const std::filesystem::path& folder);

// Gives what stands at `path` a name of its own beside it, durably; the new path.
std::filesystem::path set_aside(const std::filesystem::path& path);

}  // namespace pentatron::checkpoint
