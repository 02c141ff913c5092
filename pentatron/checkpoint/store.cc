// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/store.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <system_error>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/checkpoint/folder_names.h"
#include "pentatron/checkpoint/manifest_rules.h"
#include "pentatron/checkpoint/shard_files.h"

namespace pentatron::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxTrackerBytes = 4096;

// What a folder of Megatron-LM is, by the names in it; nothing for all else.
std::optional<std::string> megatron_format(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name.starts_with("mp_rank_") || name == "model_optim_rng.pt") {
      return "Megatron's legacy format (mp_rank_00/model_optim_rng.pt)";
    }
    if (name == ".metadata" || name == "common.pt" || name.ends_with(".distcp")) {
      return fmt::format("Megatron's torch_dist format ({})", name);
    }
  }
  return std::nullopt;
}

[[noreturn]] void refuse_megatron(const fs::path& folder, const std::string& format) {
  PENTATRON_THROW(kCheckpoint,
                  "{} holds a checkpoint in {}. Its files are pickles, which Pentatron does not "
                  "execute; it reads only checkpoints that it saved itself (safetensors and "
                  "manifest.json). Give --load a folder saved by Pentatron, or start a new run "
                  "with an empty --save folder.",
                  folder.string(), format);
}

void refuse_if_megatron(const fs::path& folder) {
  if (!fs::is_directory(folder) || is_there(folder / kManifestName)) return;
  const std::vector<std::string> names = names_in(folder);
  std::optional<std::string> format = megatron_format(names);
  if (!format && std::find(names.begin(), names.end(), "metadata.json") != names.end()) {
    format = "Megatron's distributed format (metadata.json)";
  }
  if (format) refuse_megatron(folder, *format);
}

// A folder that may hold an iteration. A set-aside one (.old_iter_N) counts only where no
// iter_N stands: the save that replaced it was stopped between its two renames.
struct Candidate {
  std::int64_t iteration = 0;
  fs::path folder;
  bool set_aside = false;
};

struct Listing {
  std::vector<Candidate> candidates;  // ascending
  bool tracker = false;
  std::optional<std::string> megatron;
  [[nodiscard]] bool empty() const { return candidates.empty() && !tracker && !megatron; }
};

Listing list_root(const fs::path& root) {
  Listing listing;
  std::map<std::int64_t, Candidate> found;
  const std::vector<std::string> names = names_in(root);
  listing.megatron = megatron_format(names);
  for (const std::string& name : names) {
    if (name == kTrackerName) listing.tracker = true;
    if (name == "release" && fs::is_directory(root / name)) {
      listing.megatron = "Megatron's release format (release/)";
    }
    // ".old_..." sorts before "iter_...", which takes its place.
    if (const auto iteration = iteration_of(name, kOldPrefix)) {
      found[*iteration] = {*iteration, root / name, true};
    }
    if (const auto iteration = iteration_of(name)) {
      found[*iteration] = {*iteration, root / name, false};
    }
  }
  for (auto& [iteration, candidate] : found) listing.candidates.push_back(std::move(candidate));
  return listing;
}

// Why the folder does not hold this iteration as a whole; nothing when it does.
std::optional<std::string> problem_of(const Candidate& candidate,
                                      const PassedOver& passed_over = {}) {
  const auto known = passed_over.find(candidate.iteration);
  if (known != passed_over.end()) return known->second;
  std::error_code code;
  if (!fs::is_directory(candidate.folder, code)) {
    return fmt::format("{} is not a folder", candidate.folder.string());
  }
  try {
    const Manifest manifest = read_manifest(candidate.folder);
    if (manifest.iteration == candidate.iteration) return std::nullopt;
    return fmt::format("{} holds iteration {}", candidate.folder.string(), manifest.iteration);
  } catch (const Error& error) {
    return error.what();
  }
}

struct Tracker {
  std::optional<std::int64_t> iteration;
  std::string problem;  // empty when fine
  bool release = false;
};

Tracker read_tracker(const fs::path& root) {
  Tracker tracker;
  const fs::path path = root / kTrackerName;
  std::string text;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {  // a pipe would be waited for
    tracker.problem = fmt::format("{} is not a file", path.string());
    return tracker;
  }
  try {
    text = read_text_file(path, kMaxTrackerBytes);
  } catch (const Error& error) {
    tracker.problem = error.what();
    return tracker;
  }
  constexpr const char* kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  text = first == std::string::npos ? std::string()
                                    : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
  tracker.release = text == "release";
  std::int64_t value = -1;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc() && stop == text.data() + text.size() && value >= 0) {
    tracker.iteration = value;
  } else if (text.empty()) {
    tracker.problem = fmt::format("{} is empty", path.string());
  } else {
    tracker.problem =
        fmt::format("{} says {}, expected an iteration", path.string(), quoted_for_message(text));
  }
  return tracker;
}

std::string have(const std::vector<Candidate>& candidates) {
  std::string text;
  for (const Candidate& candidate : candidates) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", candidate.iteration);
  }
  return text.empty() ? "none" : text;
}

void add_note(std::string& note, const std::string& text) {
  if (!note.empty()) note += "; ";
  note += text;
}

std::string set_aside_note(const Candidate& candidate) {
  return fmt::format(
      "a save that replaced iteration {} was stopped; using the version before, kept in {}",
      candidate.iteration, candidate.folder.string());
}

Found find_step(const fs::path& root, const Listing& listing, std::int64_t step,
                const PassedOver& passed_over) {
  for (const Candidate& candidate : listing.candidates) {
    if (candidate.iteration != step) continue;
    refuse_if_megatron(candidate.folder);
    const std::optional<std::string> problem = problem_of(candidate, passed_over);
    PENTATRON_CHECK(!problem, kCheckpoint,
                    "--ckpt-step {} cannot be used: {}. Name another of the iterations in {}: {}",
                    step, *problem, root.string(), have(listing.candidates));
    return {FindResult::kFound, candidate.folder, step,
            candidate.set_aside ? set_aside_note(candidate) : ""};
  }
  if (listing.megatron) refuse_megatron(root, *listing.megatron);
  PENTATRON_THROW(kCheckpoint,
                  "--ckpt-step {}: {} has no such iteration. Name another --ckpt-step (there: {}) "
                  "or leave it out",
                  step, root.string(), have(listing.candidates));
}

// The order in which folders are tried: the tracker's, then older ones, newest first, then those
// newer than the tracker's. Without a usable tracker: newest first.
std::vector<Candidate> order_of_trial(std::vector<Candidate> candidates,
                                      std::optional<std::int64_t> tracked) {
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    const bool a_newer = tracked && a.iteration > *tracked;
    const bool b_newer = tracked && b.iteration > *tracked;
    if (a_newer != b_newer) return b_newer;
    return a.iteration > b.iteration;
  });
  return candidates;
}

Listing listing_of(const fs::path& root) {
  if (!is_there(root)) return {};
  PENTATRON_CHECK(fs::is_directory(root), kCheckpoint,
                  "{} is not a folder: --load expects the folder given to --save", root.string());
  PENTATRON_CHECK(!is_there(root / kManifestName), kCheckpoint,
                  "{} is the folder of one iteration: give the folder above it, and the "
                  "iteration with --ckpt-step",
                  root.string());
  return list_root(root);
}

}  // namespace

Found find_checkpoint(const fs::path& root, std::int64_t step, const PassedOver& passed_over) {
  const Listing listing = listing_of(root);
  if (step > 0) return find_step(root, listing, step, passed_over);
  if (listing.empty()) return {};

  Found found;
  Tracker tracker;
  if (listing.tracker) {
    tracker = read_tracker(root);
    if (tracker.release) refuse_megatron(root, "Megatron's release format (tracker 'release')");
    if (!tracker.problem.empty()) add_note(found.note, tracker.problem);
  }
  if (listing.candidates.empty() && listing.megatron) refuse_megatron(root, *listing.megatron);
  if (!listing.tracker) {
    add_note(found.note, fmt::format("{} has no {}", root.string(), kTrackerName));
  }
  const bool tracked_is_there =
      std::any_of(listing.candidates.begin(), listing.candidates.end(),
                  [&](const Candidate& c) { return c.iteration == tracker.iteration; });
  if (tracker.iteration && !tracked_is_there) {
    add_note(found.note, fmt::format("{} names iteration {}, which is not there", kTrackerName,
                                     *tracker.iteration));
    tracker.iteration.reset();
  }
  for (const Candidate& candidate : order_of_trial(listing.candidates, tracker.iteration)) {
    refuse_if_megatron(candidate.folder);
    if (const std::optional<std::string> problem = problem_of(candidate, passed_over)) {
      add_note(found.note,
               fmt::format("iteration {} does not verify: {}", candidate.iteration, *problem));
      continue;
    }
    if (candidate.set_aside) add_note(found.note, set_aside_note(candidate));
    if (!found.note.empty()) {
      found.note = fmt::format("{}; using iteration {}", found.note, candidate.iteration);
    }
    found.result = FindResult::kFound;
    found.folder = candidate.folder;
    found.iteration = candidate.iteration;
    return found;
  }
  PENTATRON_THROW(kCheckpoint,
                  "{} looks like a checkpoint folder, but nothing in it can be loaded: {}. Restore "
                  "it from a copy, give another --load, or start a new run with an empty --save "
                  "folder",
                  root.string(), found.note);
}

std::vector<std::int64_t> list_iterations(const fs::path& root) {
  std::vector<std::int64_t> iterations;
  if (!fs::is_directory(root)) return iterations;
  for (const Candidate& candidate : list_root(root).candidates) {
    if (!problem_of(candidate)) iterations.push_back(candidate.iteration);
  }
  return iterations;
}

std::vector<StoredCheckpoint> list_all(const fs::path& root) {
  std::vector<StoredCheckpoint> stored;
  if (!fs::is_directory(root)) return stored;
  for (Candidate& candidate : list_root(root).candidates) {
    stored.push_back({candidate.iteration, std::move(candidate.folder)});
  }
  return stored;
}

std::optional<std::int64_t> tracked_iteration(const fs::path& root) {
  if (!is_there(root / kTrackerName)) return std::nullopt;
  return read_tracker(root).iteration;
}

StoredCheckpoint newest_checkpoint(const fs::path& root, std::int64_t step) {
  const Listing listing = listing_of(root);
  if (listing.candidates.empty() && listing.megatron) refuse_megatron(root, *listing.megatron);
  PENTATRON_CHECK(!listing.candidates.empty(), kCheckpoint, "{}: no checkpoint there",
                  root.string());
  std::optional<std::int64_t> wanted = tracked_iteration(root);
  if (step > 0) wanted = step;
  if (!wanted) wanted = listing.candidates.back().iteration;
  for (const Candidate& candidate : listing.candidates) {
    if (candidate.iteration != *wanted) continue;
    refuse_if_megatron(candidate.folder);
    return {candidate.iteration, candidate.folder};
  }
  PENTATRON_THROW(kCheckpoint, "{} is damaged: {} {}, which is not there (there: {})",
                  root.string(),
                  step > 0 ? "--ckpt-step asks for" : fmt::format("{} names", kTrackerName),
                  *wanted, have(listing.candidates));
}

}  // namespace pentatron::checkpoint
