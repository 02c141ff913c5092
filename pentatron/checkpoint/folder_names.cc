// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/folder_names.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/checkpoint/manifest_rules.h"
#include "pentatron/checkpoint/shard_files.h"
#include "pentatron/checkpoint/store.h"

namespace pentatron::checkpoint {
namespace fs = std::filesystem;
namespace {

// "rank_00000.safetensors"
bool is_shard_name(std::string_view name) {
  constexpr std::string_view kRank = "rank_";
  constexpr std::string_view kEnding = ".safetensors";
  constexpr std::size_t kDigits = 5;
  if (!name.starts_with(kRank) || !name.ends_with(kEnding)) return false;
  if (name.size() < kRank.size() + kDigits + kEnding.size()) return false;
  const std::string_view digits =
      name.substr(kRank.size(), name.size() - kRank.size() - kEnding.size());
  return digits.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string iteration_folder(std::int64_t iteration) {
  return fmt::format("iter_{:07}", iteration);
}

std::optional<std::int64_t> iteration_of(std::string_view name, std::string_view prefix) {
  constexpr std::string_view kIter = "iter_";
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (!name.starts_with(kIter)) return std::nullopt;
  const std::string_view digits = name.substr(kIter.size());
  std::int64_t iteration = 0;
  const auto [stop, code] =
      std::from_chars(digits.data(), digits.data() + digits.size(), iteration);
  if (code != std::errc() || stop != digits.data() + digits.size() || iteration < 0 ||
      iteration_folder(iteration) != name) {
    return std::nullopt;
  }
  return iteration;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    names.push_back(it->path().filename().string());
  }
  PENTATRON_CHECK(!code, kIo, "cannot list {}: {}", folder.string(), code.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool name_is_taken(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::symlink_status(path, code);
  PENTATRON_CHECK(status.type() != fs::file_type::none, kIo, "cannot look for {}: {}",
                  path.string(), code.message());
  return status.type() != fs::file_type::not_found;
}

bool is_own_checkpoint(const fs::path& folder) {
  std::error_code code;
  if (fs::symlink_status(folder, code).type() != fs::file_type::directory) return false;
  const std::vector<std::string> names = names_in(folder);
  if (std::all_of(names.begin(), names.end(), [](const std::string& name) {
        return name == kManifestName || name == kTokenizerFolder || is_shard_name(name);
      })) {
    return true;
  }
  try {
    (void)parse_manifest(read_manifest_text(folder), folder.string());
    return true;
  } catch (const Error&) {
    return false;
  }
}

fs::path set_aside(const fs::path& path) {
  fs::path other;
  int number = 0;
  do {
    other = path;
    other += fmt::format(".set_aside_{}", ++number);
  } while (name_is_taken(other));
  rename_durably(path, other);
  return other;
}

}  // namespace pentatron::checkpoint
