// SPDX-License-Identifier: Apache-2.0
#include "apps/command.h"
#include "pentatron/base/log.h"
#include "pentatron/base/progress_line.h"
#include "pentatron/datasets/merge.h"

namespace pentatron::apps {

int merge_datasets(const Words& words) {
  const Flags flags(
      "merge_datasets",
      "Joins corpora into one: those given, or all of a folder in the order of their "
      "names.",
      {},
      {{"--input", "DIR|PREFIX", "folders of .bin and .idx files, or prefixes", "", true, true},
       {"--output-prefix", "PREFIX", "the joined corpus", "", true},
       {"--multimodal", "",
        "every corpus must hold modes of its sequences, which are "
        "kept in any case"},
       {"--force", "", "replace existing output"}},
      words);
  if (flags.help()) return 0;
  const std::string output = flags.text("--output-prefix");
  StatusText status;
  const datasets::MergeStats stats = datasets::merge_datasets(
      {.inputs = flags.texts("--input"),
       .output_prefix = output,
       .multimodal = flags.has("--multimodal"),
       .force = flags.has("--force"),
       .on_progress = [&status](const std::string& line) { status.show(line); }});
  log::print_line(fmt::format("{}.bin, .idx: {} corpora, {} documents, {} sequences, {} tokens{}",
                              output, stats.corpora, stats.documents, stats.sequences, stats.tokens,
                              stats.modes ? ", with modes" : ""));
  return 0;
}

}  // namespace pentatron::apps
