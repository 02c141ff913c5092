// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace pentatron::checkpoint {

// Names inside a checkpoint root: iter_0000010/ (final), .saving_iter_0000010/ (being written),
// latest_checkpointed_iteration.txt (tracker). A folder that the system cannot list, sync or
// remove: kIo.
[[nodiscard]] std::string iteration_folder(std::int64_t iteration);
inline constexpr const char* kTrackerName = "latest_checkpointed_iteration.txt";

enum class FindResult {
  kFound,
  kNothingThere,  // no root, or nothing in it that looks like a checkpoint
};
struct Found {
  FindResult result = FindResult::kNothingThere;
  std::filesystem::path folder;
  std::int64_t iteration = 0;
  std::string note;  // "newest (12) does not verify: ...; using 10": to be logged loudly
};

// Looks for the step to load: `step` > 0 asks for that one, else the tracker's, else the newest
// complete one. A folder that does not verify (manifest or file sizes; contents are verified while
// reading) is passed over for the next older, loudly. Something like a checkpoint but none valid,
// or an asked step that is missing or damaged: kCheckpoint error with the remedy. Megatron's own
// formats are recognised and refused by name.
[[nodiscard]] Found find_checkpoint(const std::filesystem::path& root, std::int64_t step);

// Every complete iteration in the root, ascending.
[[nodiscard]] std::vector<std::int64_t> list_iterations(const std::filesystem::path& root);

// Removes left-over .saving_* folders of an earlier life.
void remove_unfinished(const std::filesystem::path& root);

// Retention after a durable save: keeps the newest `keep` (0: all), every multiple of
// retain_interval (0: none special), and `protect`. Removes the commit mark (manifest) first,
// syncs, then the rest.
void apply_retention(const std::filesystem::path& root, std::int64_t keep,
                     std::int64_t retain_interval, std::int64_t protect);

}  // namespace pentatron::checkpoint
