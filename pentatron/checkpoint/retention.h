// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

// What is removed from a --save folder, and in which order. Only under the folder's lock
// (FolderLock).
namespace pentatron::checkpoint {

// Removes what a save that was stopped left behind.
void remove_unfinished(const std::filesystem::path& root);

// Retention after a durable save: keeps the newest `keep` (0: all), every multiple of
// retain_interval (0: none special), and `protect`; damaged folders, those of other programs and
// links stay too. Removes the commit mark (manifest) first, syncs, then the rest.
void apply_retention(const std::filesystem::path& root, std::int64_t keep,
                     std::int64_t retain_interval, std::int64_t protect);

}  // namespace pentatron::checkpoint
