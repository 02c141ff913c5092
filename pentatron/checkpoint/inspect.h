// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace pentatron::checkpoint {

// A table of tensors (name, dtype, shape, slices), counters, layout. kCheckpoint for a folder
// without a sound manifest; contents of shards are not looked at.
[[nodiscard]] std::string inspect_checkpoint(const std::filesystem::path& folder);

// All that the manifest of one iteration's folder says, as one JSON object with the keys iteration,
// parameters (elements), bytes (of the files), saved (seconds since 1970), layout, train_state,
// config and tensors (name, shape, dtype, decay, elements, slices). kCheckpoint for a folder whose
// manifest is none.
[[nodiscard]] std::string inspect_checkpoint_json(const std::filesystem::path& folder);

}  // namespace pentatron::checkpoint
