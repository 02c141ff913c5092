// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/error_line.h"
#include "pentatron/base/log.h"
#include "pentatron/checkpoint/inspect.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/checkpoint/verify.h"

namespace pentatron::apps {
namespace {

namespace fs = std::filesystem;
namespace store = pentatron::checkpoint;

// Says what was found; true when all of it is good.
bool verify(const fs::path& folder) {
  const store::VerifyReport report = store::verify_checkpoint(folder);
  for (const std::string& problem : report.problems) print_error_line("", problem);
  log::print_line(fmt::format("{}: {} ({} tensors, {} files, {} bytes)", folder.string(),
                              report.ok ? "good" : "damaged", report.tensors, report.files,
                              report.bytes));
  return report.ok;
}

// The newest of a --save folder that has no damage, for advice; nothing when there is none.
std::string advice(const fs::path& root) {
  std::vector<store::StoredCheckpoint> all = store::list_all(root);
  for (auto stored = all.rbegin(); stored != all.rend(); ++stored) {
    if (!store::verify_checkpoint(stored->folder).ok) continue;
    return fmt::format("the newest that is whole: --ckpt-step {}", stored->iteration);
  }
  return "none in this folder is whole";
}

bool verify_all(const fs::path& root) {
  const std::vector<store::StoredCheckpoint> all = store::list_all(root);
  // Nothing there, or a tracker that names what is not there: its own error.
  (void)store::newest_checkpoint(root, 0);
  std::size_t damaged = 0;
  for (const store::StoredCheckpoint& stored : all) damaged += verify(stored.folder) ? 0 : 1;
  log::print_line(fmt::format("{} of {} checkpoints are good", all.size() - damaged, all.size()));
  return damaged == 0;
}

}  // namespace

int checkpoint(const Words& words) {
  const Flags flags(
      "checkpoint",
      "inspect: tensors, counters, layout. verify: every checksum and rule. hash: "
      "SHA-256 of the state, equal for equal training states in any layout. FOLDER is "
      "a --save folder, of which the newest checkpoint is meant, or one iteration's "
      "folder. A damaged one is named, with exit code 7; no older one is taken in its "
      "place.",
      {"inspect|verify|hash", "FOLDER"},
      {{"--ckpt-step", "N", "this iteration of a --save folder; 0: the newest", "0"},
       {"--all", "", "verify every checkpoint of a --save folder"},
       {"--json", "", "inspect: everything, as one JSON object"}},
      words);
  if (flags.help()) return 0;
  const std::string& action = flags.positional(0);
  PENTATRON_CHECK(action == "inspect" || action == "verify" || action == "hash", kConfig,
                  "pentatron checkpoint: expected inspect, verify or hash, got '{}'", action);
  const fs::path root = flags.positional(1);
  const std::int64_t step = flags.integer("--ckpt-step", 0);
  const bool all = flags.has("--all");
  PENTATRON_CHECK(!all || (action == "verify" && step == 0), kConfig,
                  "pentatron checkpoint: --all goes with verify alone, without --ckpt-step");
  const bool is_root = !fs::exists(root / "manifest.json");
  const int damaged = exit_code(ErrorKind::kCheckpoint);
  if (all && is_root) return verify_all(root) ? 0 : damaged;
  const fs::path folder = is_root ? store::newest_checkpoint(root, step).folder : root;
  PENTATRON_CHECK(action == "inspect" || !flags.has("--json"), kConfig,
                  "pentatron checkpoint: --json goes with inspect alone");
  if (action == "inspect") {
    log::print_line(flags.has("--json") ? store::inspect_checkpoint_json(folder)
                                        : store::inspect_checkpoint(folder));
    return 0;
  }
  if (action == "hash") {
    store::CheckpointReader reader(folder);
    log::print_line(store::state_hash(reader));
    return 0;
  }
  if (verify(folder)) return 0;
  if (is_root) print_error_line("", fmt::format("{}: {}", root.string(), advice(root)));
  return damaged;
}

}  // namespace pentatron::apps
