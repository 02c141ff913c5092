// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "pentatron/base/safetensors.h"
#include "pentatron/checkpoint/manifest.h"

// The files of one checkpoint's folder. Not for other modules.
namespace pentatron::checkpoint {

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

}  // namespace pentatron::checkpoint
