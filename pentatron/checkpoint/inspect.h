// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace pentatron::checkpoint {

// All that the manifest of one iteration's folder says, as one JSON object with the keys iteration,
// parameters (elements), bytes (of the files), saved (seconds since 1970), layout, train_state,
// config and tensors (name, shape, dtype, decay, elements, slices). kCheckpoint for a folder whose
// manifest is none. The table for a person is inspect_checkpoint() (reader.h).
[[nodiscard]] std::string inspect_checkpoint_json(const std::filesystem::path& folder);

}  // namespace pentatron::checkpoint
