// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/checkpoint/manifest.h"

// What writer and reader share beyond manifest.h; not for other modules.
namespace pentatron::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 29;
inline constexpr std::uint64_t kMaxTokenizerFileBytes = std::uint64_t{256} << 20;

// As parse_manifest, but the slices may cover a part of each tensor only: what one rank wrote.
[[nodiscard]] Manifest parse_manifest_piece(const std::string& text, const std::string& path);

// Tensors by name; slices by tensor, box and range; files by name.
void sort_manifest(Manifest& manifest);

// Runs `action`; an Error of another kind becomes a kCheckpoint error that begins with `path`.
template <typename Action>
decltype(auto) as_checkpoint_error(const std::string& path, Action&& action) {
  try {
    return action();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kCheckpoint) throw;
    const std::string_view message = error.what();
    if (message.starts_with(path)) PENTATRON_THROW(kCheckpoint, "{}", message);
    PENTATRON_THROW(kCheckpoint, "{}: {}", path, message);
  }
}

}  // namespace pentatron::checkpoint
