// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/base/progress_line.h"
#include "pentatron/datasets/byte_source.h"
#include "pentatron/tokenizers/bpe_trainer.h"

namespace pentatron::apps {
namespace {

// Line by line, as train_bpe_from_files does, from files that need not be plain.
void count_words(const std::string& name, tokenizers::BpeTrainer& trainer) {
  constexpr std::size_t kPiece = 1 << 20;       // bytes
  constexpr std::size_t kLongest = 1ULL << 30;  // bytes of a line
  const std::unique_ptr<datasets::ByteSource> source = datasets::open_byte_source(name);
  std::string text;
  std::vector<char> piece(kPiece);
  for (std::size_t got = source->read(piece); got > 0; got = source->read(piece)) {
    std::size_t begin = 0;
    std::size_t end = text.size();  // no line end before what is new
    text.append(piece.data(), got);
    while ((end = text.find('\n', end)) != std::string::npos) {
      trainer.add_text(std::string_view(text).substr(begin, ++end - begin));
      begin = end;
    }
    text.erase(0, begin);
    PENTATRON_CHECK(text.size() <= kLongest, kData, "{}: a line of more than {} MiB",
                    source->name(), kLongest >> 20);
  }
  if (!text.empty()) trainer.add_text(text);
}

}  // namespace

int train_tokenizer(const Words& words) {
  const Flags flags(
      "train_tokenizer",
      "Trains a GPT-2 style byte-level BPE on text files; writes FOLDER/vocab.json and "
      "FOLDER/merges.txt.",
      {},
      {{"--input", "FILE",
        "text files, plain or packed by gzip, Zstandard, bzip2 or xz; -: standard input", "", true,
        true},
       {"--vocab-size", "N", "tokens, the end-of-document token and 256 bytes included", "", true},
       {"--min-frequency", "N", "pairs seen less often are not merged", "2"},
       {"--output", "FOLDER", "where to write", "", true}},
      words);
  if (flags.help()) return 0;
  tokenizers::BpeTrainer trainer;
  for (const std::string& name : flags.texts("--input")) count_words(name, trainer);
  ProgressLine progress({.what = "learnt", .unit = "tokens", .line_seconds = 5});
  std::int64_t known = 0;
  const tokenizers::BpeVocabulary vocabulary =
      trainer.train({.vocab_size = flags.integer("--vocab-size", 1),
                     .min_frequency = flags.integer("--min-frequency", 1),
                     .progress = [&](std::int64_t done, std::int64_t all) {
                       if (known == 0) progress.expect(all);
                       progress.add(done - known);
                       known = done;
                     }});
  const std::filesystem::path folder = flags.text("--output");
  create_folders(folder);
  vocabulary.save(folder / "vocab.json", folder / "merges.txt");
  log::print_line(fmt::format("wrote {} and {}: {} tokens", (folder / "vocab.json").string(),
                              (folder / "merges.txt").string(), vocabulary.size()));
  return 0;
}

}  // namespace pentatron::apps
