// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/store.h"

namespace pentatron::apps {

int checkpoint(const Words& words) {
  const Flags flags("checkpoint",
                    "inspect: tensors, counters, layout. verify: every checksum and rule. hash: "
                    "SHA-256 of the state, equal "
                    "for equal training states in any layout. FOLDER is a --save folder or one "
                    "iteration's folder.",
                    {"inspect|verify|hash", "FOLDER"},
                    {{"--ckpt-step", "N", "this iteration of a --save folder; 0: the newest", "0"}},
                    words);
  if (flags.help()) return 0;
  const std::string& action = flags.positional(0);
  PENTATRON_CHECK(action == "inspect" || action == "verify" || action == "hash", kConfig,
                  "pentatron checkpoint: expected inspect, verify or hash, got '{}'", action);
  std::filesystem::path folder = flags.positional(1);
  if (!std::filesystem::exists(folder / "manifest.json")) {
    const pentatron::checkpoint::Found found =
        pentatron::checkpoint::find_checkpoint(folder, flags.integer("--ckpt-step", 0));
    PENTATRON_CHECK(found.result == pentatron::checkpoint::FindResult::kFound, kCheckpoint,
                    "{}: no checkpoint there", folder.string());
    if (!found.note.empty()) log::warn("{}", found.note);
    folder = found.folder;
  }
  if (action == "inspect") {
    log::print_line(pentatron::checkpoint::inspect_checkpoint(folder));
    return 0;
  }
  if (action == "hash") {
    pentatron::checkpoint::CheckpointReader reader(folder);
    log::print_line(pentatron::checkpoint::state_hash(reader));
    return 0;
  }
  const pentatron::checkpoint::VerifyReport report =
      pentatron::checkpoint::verify_checkpoint(folder);
  for (const std::string& problem : report.problems) log::error("{}", problem);
  log::print_line(fmt::format("{}: {} ({} tensors, {} files, {} bytes)", folder.string(),
                              report.ok ? "good" : "damaged", report.tensors, report.files,
                              report.bytes));
  return report.ok ? 0 : exit_code(ErrorKind::kCheckpoint);
}

}  // namespace pentatron::apps
