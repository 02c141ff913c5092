// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/datasets/blend.h"
#include "pentatron/datasets/sequence_counts.h"

namespace pentatron::apps {
namespace {

constexpr const char* kPartPaths[] = {"--train-data-path", "--valid-data-path", "--test-data-path"};

// The prefixes that the options name, by the rules of training.
std::vector<std::string> prefixes_of(const Flags& flags) {
  const bool parts = std::ranges::any_of(kPartPaths, [&](auto name) { return flags.has(name); });
  const int families = static_cast<int>(flags.has("--data-path")) + static_cast<int>(parts) +
                       static_cast<int>(flags.has("--data-args-path")) +
                       static_cast<int>(flags.has("--per-split-data-args-path"));
  PENTATRON_CHECK(families == 1, kConfig,
                  "give the corpora by one of --data-path, --data-args-path, "
                  "--per-split-data-args-path, or --train-data-path, --valid-data-path and "
                  "--test-data-path");
  std::vector<std::string> prefixes;
  const auto add = [&](const std::vector<std::string>& words, std::string_view option) {
    if (words.empty()) return;
    const std::vector<std::string> more = datasets::parse_blend(words, option).prefixes;
    prefixes.insert(prefixes.end(), more.begin(), more.end());
  };
  add(flags.texts("--data-path"), "--data-path");
  for (const char* const name : kPartPaths) add(flags.texts(name), name);
  if (flags.has("--data-args-path")) {
    add(datasets::read_blend_words(flags.text("--data-args-path")), "--data-args-path");
  }
  if (flags.has("--per-split-data-args-path")) {
    const auto words = datasets::read_split_words(flags.text("--per-split-data-args-path"));
    for (const auto* part : {&words.train, &words.valid, &words.test}) {
      add(*part, "--per-split-data-args-path");
    }
  }
  return prefixes;
}

}  // namespace

int build_sequences_per_dataset(const Words& words) {
  const Flags flags(
      "build_sequences_per_dataset",
      "Counts the sequences of each corpus of a blend into a JSON file, for Megatron-LM's "
      "--per-dataset-sequences-path.",
      {},
      {{"--data-path", "WORD", "a prefix, or a blend as in training", "", false, true},
       {"--train-data-path", "WORD", "likewise, of the training part", "", false, true},
       {"--valid-data-path", "WORD", "likewise, of the validation part", "", false, true},
       {"--test-data-path", "WORD", "likewise, of the test part", "", false, true},
       {"--data-args-path", "FILE", "file with the words of --data-path", ""},
       {"--per-split-data-args-path", "FILE", "JSON file with the words of the three parts", ""},
       {"--per-dataset-sequences-path", "FILE", "JSON file to write", "", true}},
      words);
  if (flags.help()) return 0;
  const auto counts = datasets::count_sequences(prefixes_of(flags));
  const std::string file = flags.text("--per-dataset-sequences-path");
  write_file_atomically(file, datasets::sequence_counts_json(counts));
  log::print_line(fmt::format("{}: counts of {} corpora", file, counts.size()));
  return 0;
}

}  // namespace pentatron::apps
