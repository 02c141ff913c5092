// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "pentatron/checkpoint/manifest.h"

// The files in a checkpoint's folder "tokenizer", which the manifest lists with their checksums:
// those of the tokenizer that a run was trained with, and all that lay beside the weights of an
// import. Weights do not depend on them: a damaged one stops whoever uses it, and `checkpoint
// verify`, but not a run that goes on.
namespace pentatron::checkpoint {

// A line each for a file that is missing, of another size or content, not a regular file, or there
// without being listed. Manifests of version 1 list none, so nothing is known of theirs.
[[nodiscard]] std::vector<std::string> tokenizer_problems(const std::filesystem::path& checkpoint,
                                                          const Manifest& manifest);

// kCheckpoint with those lines, if there are any.
void check_tokenizer(const std::filesystem::path& checkpoint, const Manifest& manifest);

// Names and bytes, checked. Of version 1: what lies in the folder under plain names.
[[nodiscard]] std::map<std::string, std::string> read_tokenizer(
    const std::filesystem::path& checkpoint, const Manifest& manifest);

}  // namespace pentatron::checkpoint
