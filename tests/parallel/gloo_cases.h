// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/parallel/parity_case.h"

// What gloo_parity_test and its worker processes agree on.
namespace pentatron::parity {

struct GlooCase {
  std::string name;  // of the file, without its extension
  CaseOptions options;
  Layout layout;
};

// The cases of a world of 2 or of 4 processes.
[[nodiscard]] std::vector<GlooCase> gloo_cases(std::int64_t world_size);

// An outcome as a safetensors file, all fp64: loss and norms as vectors, tensors under the prefixes
// of their kinds.
void write_outcome(const std::filesystem::path& path, const Outcome& outcome);
[[nodiscard]] Outcome read_outcome(const std::filesystem::path& path);

}  // namespace pentatron::parity
