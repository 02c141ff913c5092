// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
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

// Iterations whose contents turned out to be damaged, with the reason.
using PassedOver = std::map<std::int64_t, std::string>;

// Looks for the step to load: `step` > 0 asks for that one, else the tracker's, else the newest
// complete one. A folder that does not verify (manifest or file sizes; contents: open_checkpoint,
// which gives back what it found in `passed_over`) is passed over for the next older, loudly.
// Something like a checkpoint but none valid, or an asked step that is missing or damaged:
// kCheckpoint error with the remedy. Megatron's own formats are recognised and refused by name.
[[nodiscard]] Found find_checkpoint(const std::filesystem::path& root, std::int64_t step,
                                    const PassedOver& passed_over = {});

// A folder that carries the name of an iteration, in whatever state.
struct StoredCheckpoint {
  std::int64_t iteration = 0;
  std::filesystem::path folder;
};
// All of them, ascending.
[[nodiscard]] std::vector<StoredCheckpoint> list_all(const std::filesystem::path& root);
// What the tracker names; nothing when there is none or it says something else.
[[nodiscard]] std::optional<std::int64_t> tracked_iteration(const std::filesystem::path& root);
// The one that a run would load if all were whole: `step` > 0, else the tracker's, else the newest.
// Its state is not looked at. kCheckpoint error when it is not there.
[[nodiscard]] StoredCheckpoint newest_checkpoint(const std::filesystem::path& root,
                                                 std::int64_t step);

// Every complete iteration in the root, ascending.
[[nodiscard]] std::vector<std::int64_t> list_iterations(const std::filesystem::path& root);

}  // namespace pentatron::checkpoint
