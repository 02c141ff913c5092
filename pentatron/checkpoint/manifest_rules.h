// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/base/safetensors.h"
#include "pentatron/checkpoint/manifest.h"

// What writer and reader share beyond manifest.h; not for other modules.
namespace pentatron::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 29;
inline constexpr std::uint64_t kMaxTokenizerFileBytes = std::uint64_t{256} << 20;

// As parse_manifest, but the slices may cover a part of each tensor only: what one rank wrote.
[[nodiscard]] Manifest parse_manifest_piece(const std::string& text, const std::string& path);

// The slices of each tensor cover each element exactly once: slices of one box have ranges that
// follow each other from 0 to its end, and the different boxes tile the logical shape. Needs
// canonical order. kCheckpoint error that names `path` and the tensor.
void check_coverage(const Manifest& manifest, const std::string& path);

// Tensors by name; slices by tensor, box and range; files by name.
void sort_manifest(Manifest& manifest);

// `file` of `folder` is there as a regular file of the right size; its content is not looked at.
// kCheckpoint error.
void check_listed_file(const std::filesystem::path& folder, const ManifestFile& file);

// The text of the manifest; kCheckpoint error when it is not there, no file, or cannot be read.
[[nodiscard]] std::string read_manifest_text(const std::filesystem::path& folder);

// The manifest of a folder that holds a whole checkpoint: it parses, and each file it names is a
// regular file of the size it says. kCheckpoint error otherwise.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& folder);

// Is there a file or folder of this name? kIo error when the system cannot tell.
[[nodiscard]] bool is_there(const std::filesystem::path& path);

// The values of one slice in its open file, as raw bytes; the file's header must say what the
// manifest says. kCheckpoint error that names `path`.
[[nodiscard]] std::span<const std::byte> slice_bytes(const SafetensorsFile& file,
                                                     const ManifestSlice& slice,
                                                     const std::string& dtype,
                                                     const std::string& path);

// Opens a shard of `folder`, checks its size and, if asked, its checksum. kCheckpoint error.
[[nodiscard]] std::unique_ptr<SafetensorsFile> open_shard(const std::filesystem::path& folder,
                                                          const ManifestFile& file,
                                                          bool verify_checksum);

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
