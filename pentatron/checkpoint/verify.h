// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace pentatron::checkpoint {

struct VerifyReport {
  bool ok = true;
  std::vector<std::string> problems;
  std::uint64_t bytes = 0;  // manifest, shards, files of the tokenizer
  std::size_t files = 0;
  std::size_t tensors = 0;
};
// Checks every checksum and every rule of the format; never throws for a damaged checkpoint.
[[nodiscard]] VerifyReport verify_checkpoint(const std::filesystem::path& folder);

}  // namespace pentatron::checkpoint
