// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/tokenizer_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/base/sha256.h"
#include "pentatron/checkpoint/folder_names.h"
#include "pentatron/checkpoint/manifest_rules.h"
#include "pentatron/checkpoint/shard_files.h"

namespace pentatron::checkpoint {
namespace fs = std::filesystem;
namespace {

// Sizes are looked at before anything is read.
std::string read_listed(const fs::path& folder, const ManifestFile& file) {
  check_listed_file(folder, file);
  const fs::path path = folder / file.name;
  std::string bytes = as_checkpoint_error(
      path.string(), [&] { return read_text_file(path, kMaxTokenizerFileBytes); });
  PENTATRON_CHECK(sha256_hex(bytes) == file.sha256, kCheckpoint,
                  "{} is damaged: its checksum is not the manifest's", path.string());
  return bytes;
}

std::vector<std::string> names_there(const fs::path& folder) {
  return name_is_taken(folder) ? names_in(folder) : std::vector<std::string>{};
}

}  // namespace

std::vector<std::string> tokenizer_problems(const fs::path& checkpoint, const Manifest& manifest) {
  std::vector<std::string> problems;
  if (!manifest.lists_tokenizer()) return problems;
  const auto note = [&](const auto& check) {
    try {
      check();
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  };
  const fs::path folder = checkpoint / kTokenizerFolder;
  std::set<std::string> listed;
  for (const ManifestFile& file : manifest.tokenizer) {
    listed.insert(file.name);
    note([&] { (void)read_listed(folder, file); });
  }
  note([&] {
    for (const std::string& name : names_there(folder)) {
      PENTATRON_CHECK(listed.contains(name), kCheckpoint,
                      "{}: the manifest does not list {}, which somebody else has put there",
                      folder.string(), quoted_for_message(name));
    }
  });
  return problems;
}

void check_tokenizer(const fs::path& checkpoint, const Manifest& manifest) {
  const std::vector<std::string> problems = tokenizer_problems(checkpoint, manifest);
  PENTATRON_CHECK(problems.empty(), kCheckpoint, "{}", fmt::join(problems, "; "));
}

std::map<std::string, std::string> read_tokenizer(const fs::path& checkpoint,
                                                  const Manifest& manifest) {
  const fs::path folder = checkpoint / kTokenizerFolder;
  std::map<std::string, std::string> files;
  if (manifest.lists_tokenizer()) {
    for (const ManifestFile& file : manifest.tokenizer)
      files[file.name] = read_listed(folder, file);
    return files;
  }
  for (const std::string& name : names_there(folder)) {
    std::error_code code;
    if (name.starts_with('.') || !fs::is_regular_file(fs::symlink_status(folder / name, code))) {
      continue;
    }
    files[name] = read_text_file(folder / name, kMaxTokenizerFileBytes);
  }
  return files;
}

}  // namespace pentatron::checkpoint
