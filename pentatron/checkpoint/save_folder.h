// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "pentatron/checkpoint/folder_lock.h"
#include "pentatron/comm/group.h"

// What is asked of a --save folder when a run starts, so that the first save does not fail after
// hours.
namespace pentatron::checkpoint {

// Makes the folder (with its parents) where it is missing. A file or a link to nothing in its
// place: kConfig; a folder that cannot be made or written to: kIo.
void prepare_save_folder(const std::filesystem::path& root);

// kIo unless the file system of the folder has room for one checkpoint of so many bytes beside
// what is there: an old one goes only after the new one is complete.
void check_room(const std::filesystem::path& root, std::uint64_t bytes);

// prepare_save_folder() and FolderLock on rank 0 of `world`, and every other rank sees the folder
// and may write there; errors on all ranks. The lock on rank 0, null on the others. Collective.
[[nodiscard]] std::unique_ptr<FolderLock> open_save_folder(const std::filesystem::path& root,
                                                           comm::Group& world);

}  // namespace pentatron::checkpoint
