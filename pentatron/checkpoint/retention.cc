// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/retention.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/stop_cleanup.h"
#include "pentatron/checkpoint/folder_names.h"
#include "pentatron/checkpoint/manifest_rules.h"
#include "pentatron/checkpoint/shard_files.h"
#include "pentatron/checkpoint/store.h"

namespace pentatron::checkpoint {
namespace fs = std::filesystem;
namespace {

// What AtomicFile leaves when it is stopped before its rename.
bool tracker_leftover(std::string_view name) {
  constexpr std::string_view kTemporary = ".tmp.";
  return name.starts_with(kTrackerName) &&
         name.substr(std::string_view(kTrackerName).size()).starts_with(kTemporary);
}

// A folder whose manifest was removed first, when a removal was stopped: nothing but shards.
bool shards_without_manifest(const fs::path& folder) {
  return is_own_checkpoint(folder) && !is_there(folder / kManifestName);
}

// Ctrl-C waits for the end: no folder is left without its manifest.
void remove_checkpoint(const fs::path& folder) {
  const HoldStop whole;
  remove_tree(folder / kManifestName);
  sync_folder(folder);
  remove_tree(folder);
}

}  // namespace

void remove_unfinished(const fs::path& root) {
  if (!fs::is_directory(root)) return;
  bool changed = false;
  for (const std::string& name : names_in(root)) {
    if (const auto iteration = iteration_of(name, kOldPrefix)) {
      // A folder of another program that has a name of ours: not deleted.
      if (!is_own_checkpoint(root / name)) continue;
      const fs::path in_place = root / iteration_folder(*iteration);
      if (name_is_taken(in_place)) {
        // When something else took the new folder's place, the former version is the only one left.
        if (!is_own_checkpoint(in_place)) continue;
        remove_checkpoint(root / name);
        changed = true;
      } else {
        rename_durably(root / name, in_place);
      }
    } else if (iteration_of(name, kSavingPrefix) || tracker_leftover(name)) {
      remove_tree(root / name);
      changed = true;
    }
  }
  if (changed) sync_folder(root);
}

void apply_retention(const fs::path& root, std::int64_t keep, std::int64_t retain_interval,
                     std::int64_t protect) {
  if (keep <= 0 || !fs::is_directory(root)) return;
  const std::vector<std::int64_t> whole = list_iterations(root);
  const std::optional<std::int64_t> tracked = tracked_iteration(root);
  bool changed = false;
  for (const StoredCheckpoint& stored : list_all(root)) {
    const auto position = std::lower_bound(whole.begin(), whole.end(), stored.iteration);
    const bool is_whole = position != whole.end() && *position == stored.iteration;
    // Damaged folders stay for inspection, except leftovers of an interrupted removal. A link
    // stays too: somebody moved the checkpoint elsewhere on purpose.
    if (fs::is_symlink(fs::symlink_status(stored.folder))) continue;
    if (!is_whole && !shards_without_manifest(stored.folder)) continue;
    const bool newest = is_whole && whole.end() - position <= keep;
    const bool special = retain_interval > 0 && stored.iteration % retain_interval == 0;
    // The tracker's own stays too: it may be older than others when a run began anew from there.
    const bool keeps =
        newest || special || stored.iteration == protect || stored.iteration == tracked;
    if (is_whole && keeps) continue;
    remove_checkpoint(stored.folder);
    changed = true;
  }
  if (changed) sync_folder(root);
}

}  // namespace pentatron::checkpoint
