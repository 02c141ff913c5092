// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <system_error>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/base/mapped_pages.h"
#include "pentatron/base/sha256.h"
#include "pentatron/checkpoint/manifest_rules.h"

namespace pentatron::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kHashedBytes = std::size_t{4} << 20;

}  // namespace

bool is_there(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  PENTATRON_CHECK(status.type() != fs::file_type::none, kIo, "cannot look for {}: {}",
                  path.string(), code.message());
  return fs::exists(status);
}

void check_listed_file(const fs::path& folder, const ManifestFile& file) {
  const fs::path shard = folder / file.name;
  std::error_code code;
  const fs::file_status status = fs::symlink_status(shard, code);
  PENTATRON_CHECK(status.type() != fs::file_type::not_found, kCheckpoint,
                  "{} is damaged: the file {} is missing", folder.string(), file.name);
  PENTATRON_CHECK(status.type() == fs::file_type::regular, kCheckpoint,
                  "{} is damaged: {} is not a regular file (links are not followed)",
                  folder.string(), file.name);
  const std::uintmax_t bytes = fs::file_size(shard, code);
  PENTATRON_CHECK(!code && bytes == file.bytes, kCheckpoint,
                  "{} is damaged: {} has {} bytes, the manifest says {}", folder.string(),
                  file.name, code ? 0 : bytes, file.bytes);
}

std::string read_manifest_text(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  PENTATRON_CHECK(is_there(path), kCheckpoint, "{} is no complete checkpoint: it has no {}",
                  folder.string(), kManifestName);
  std::error_code code;
  // A pipe would be waited for.
  PENTATRON_CHECK(fs::is_regular_file(path, code), kCheckpoint, "{} is damaged: it is not a file",
                  path.string());
  return as_checkpoint_error(path.string(),
                             [&] { return read_text_file(path, kMaxManifestBytes); });
}

Manifest read_manifest(const fs::path& folder) {
  const std::string text = read_manifest_text(folder);
  Manifest manifest = parse_manifest(text, (folder / kManifestName).string());
  for (const ManifestFile& file : manifest.files) check_listed_file(folder, file);
  return manifest;
}

std::unique_ptr<SafetensorsFile> open_shard(const fs::path& folder, const ManifestFile& file,
                                            bool verify_checksum) {
  const std::string path = (folder / file.name).string();
  return as_checkpoint_error(path, [&] {
    auto shard = std::make_unique<SafetensorsFile>(path);
    const std::span<const std::byte> bytes = shard->file_bytes();
    PENTATRON_CHECK(bytes.size() == file.bytes, kCheckpoint,
                    "{} is damaged: it has {} bytes, the manifest says {}", path, bytes.size(),
                    file.bytes);
    if (verify_checksum) {
      Sha256 hash;
      for (std::size_t done = 0; done < bytes.size(); done += kHashedBytes) {
        const auto piece = bytes.subspan(done, std::min(kHashedBytes, bytes.size() - done));
        hash.update(piece);
        release_pages(piece);
      }
      PENTATRON_CHECK(hash.hex_digest() == file.sha256, kCheckpoint,
                      "{} is damaged: its checksum is not the manifest's", path);
    }
    return shard;
  });
}

std::span<const std::byte> slice_bytes(const SafetensorsFile& file, const ManifestSlice& slice,
                                       const std::string& dtype, const std::string& path) {
  const auto found = file.header().entries.find(slice.key);
  PENTATRON_CHECK(found != file.header().entries.end(), kCheckpoint,
                  "{} is damaged: it has no tensor {}", path, quoted_for_message(slice.key));
  const SafetensorsEntry& entry = found->second;
  const std::uint64_t bytes = static_cast<std::uint64_t>(slice.range_end - slice.range_begin) *
                              safetensors_item_bytes(dtype).value_or(0);
  PENTATRON_CHECK(entry.dtype == dtype && entry.end - entry.begin == bytes, kCheckpoint,
                  "{} is damaged: {} has {} bytes of {}, the manifest says {} of {}", path,
                  quoted_for_message(slice.key), entry.end - entry.begin, entry.dtype, bytes,
                  dtype);
  return file.bytes(slice.key);
}

}  // namespace pentatron::checkpoint
