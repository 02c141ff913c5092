// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>

#include "apps/command.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/tokenizers/bpe_trainer.h"

namespace pentatron::apps {

int train_tokenizer(const Words& words) {
  const Flags flags(
      "train_tokenizer",
      "Trains a GPT-2 style byte-level BPE on text files; writes FOLDER/vocab.json and "
      "FOLDER/merges.txt.",
      {},
      {{"--input", "FILE", "text files", "", true, true},
       {"--vocab-size", "N", "tokens, the end-of-document token and 256 bytes included", "", true},
       {"--min-frequency", "N", "pairs seen less often are not merged", "2"},
       {"--output", "FOLDER", "where to write", "", true}},
      words);
  if (flags.help()) return 0;
  std::vector<std::filesystem::path> files;
  for (const std::string& name : flags.texts("--input")) files.emplace_back(name);
  std::int64_t reported = 0;
  const tokenizers::BpeVocabulary vocabulary = tokenizers::train_bpe_from_files(
      files, {.vocab_size = flags.integer("--vocab-size", 1),
              .min_frequency = flags.integer("--min-frequency", 1),
              .progress = [&reported](std::int64_t done, std::int64_t all) {
                constexpr std::int64_t kReports = 5;
                if (done != all && done < reported + all / kReports) return;
                reported = done;
                log::info("{} of {} tokens", done, all);
              }});
  const std::filesystem::path folder = flags.text("--output");
  create_folders(folder);
  vocabulary.save(folder / "vocab.json", folder / "merges.txt");
  log::print_line(fmt::format("wrote {} and {}: {} tokens", (folder / "vocab.json").string(),
                              (folder / "merges.txt").string(), vocabulary.size()));
  return 0;
}

}  // namespace pentatron::apps
