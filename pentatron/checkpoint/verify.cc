// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/verify.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/checkpoint/manifest_rules.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/shard_files.h"
#include "pentatron/checkpoint/tokenizer_folder.h"

namespace pentatron::checkpoint {
namespace fs = std::filesystem;
namespace {

// Runs `check`; what it throws becomes a line of the report.
template <typename Check>
bool collect(VerifyReport& report, Check&& check) {
  try {
    check();
    return true;
  } catch (const std::exception& error) {
    report.ok = false;
    report.problems.emplace_back(error.what());
    return false;
  }
}

// A slice with the dtype of its tensor.
struct Stored {
  const ManifestSlice* slice;
  const std::string* dtype;
};
using StoredIn = std::map<std::string_view, std::vector<Stored>>;

StoredIn slices_by_file(const Manifest& manifest) {
  std::map<std::string_view, const std::string*> dtypes;
  for (const ManifestTensor& tensor : manifest.tensors) dtypes[tensor.name] = &tensor.dtype;
  StoredIn stored;
  for (const ManifestSlice& slice : manifest.slices) {
    stored[slice.file].push_back({&slice, dtypes.at(slice.tensor)});
  }
  return stored;
}

// Opened after a check of its size, checksum, header, every slice that should lie in it, and
// nothing else in it.
std::unique_ptr<SafetensorsFile> open_checked(const fs::path& folder, const ManifestFile& file,
                                              const std::vector<Stored>& stored) {
  check_listed_file(folder, file);
  const std::string path = (folder / file.name).string();
  std::unique_ptr<SafetensorsFile> shard = open_shard(folder, file, true);
  for (const Stored& one : stored) (void)slice_bytes(*shard, *one.slice, *one.dtype, path);
  PENTATRON_CHECK(shard->header().entries.size() == stored.size(), kCheckpoint,
                  "{} is damaged: it holds {} tensors, the manifest names {}", path,
                  shard->header().entries.size(), stored.size());
  return shard;
}

}  // namespace

VerifyReport verify_checkpoint(const fs::path& folder) {
  VerifyReport report;
  Manifest manifest;
  // Sizes and presence are checked a file at a time below, so that all problems are reported.
  const bool readable = collect(report, [&] {
    const std::string text = read_manifest_text(folder);
    manifest = parse_manifest(text, (folder / kManifestName).string());
    report.bytes += text.size();
  });
  if (!readable) return report;
  report.tensors = manifest.tensors.size();
  report.files = manifest.files.size();
  const StoredIn stored = slices_by_file(manifest);
  for (const ManifestFile& file : manifest.files) {
    report.bytes += file.bytes;
    collect(report, [&] { (void)open_checked(folder, file, stored.at(file.name)); });
  }
  report.files += manifest.tokenizer.size();
  for (const ManifestFile& file : manifest.tokenizer) report.bytes += file.bytes;
  for (std::string& problem : tokenizer_problems(folder, manifest)) {
    report.ok = false;
    report.problems.push_back(std::move(problem));
  }
  return report;
}

std::vector<std::string> CheckpointReader::verify_shards(std::size_t first, std::size_t stride) {
  VerifyReport report;
  const StoredIn stored = slices_by_file(manifest_);
  for (std::size_t i = first; i < manifest_.files.size(); i += stride) {
    const ManifestFile& file = manifest_.files[i];
    collect(report, [&] { files_[file.name] = open_checked(folder_, file, stored.at(file.name)); });
  }
  return report.problems;
}

}  // namespace pentatron::checkpoint
