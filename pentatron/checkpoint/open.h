// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/comm/group.h"

namespace pentatron::checkpoint {

struct OpenedCheckpoint {
  Found found;
  std::unique_ptr<CheckpointReader> reader;  // null when nothing is there
};

// The checkpoint to load, as find_checkpoint() orders them, with the contents of all its files
// verified: the ranks of `world` share the work, and a damaged one is passed over by all of them
// alike, saying in Found::note which file is damaged. An asked `step` that is damaged, and a folder
// in which nothing verifies: kCheckpoint. Ranks that see different folders: kConfig. Collective.
[[nodiscard]] OpenedCheckpoint open_checkpoint(const std::filesystem::path& root, std::int64_t step,
                                               comm::Group& world);
// The same for a process alone.
[[nodiscard]] OpenedCheckpoint open_checkpoint(const std::filesystem::path& root,
                                               std::int64_t step);

}  // namespace pentatron::checkpoint
