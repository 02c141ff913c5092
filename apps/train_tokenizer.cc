// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/base/progress_line.h"
#include "pentatron/datasets/parallel_lines.h"
#include "pentatron/datasets/text_lines.h"
#include "pentatron/tokenizers/bpe_trainer.h"
#include "pentatron/tokenizers/unigram_trainer.h"
#include "pentatron/tokenizers/word_piece_trainer.h"

namespace pentatron::apps {
namespace {

constexpr std::uint64_t kMegabyte = 1'000'000;

// Says how far reading is, every so many bytes.
class ReadingProgress final {
 public:
  void operator()(std::int64_t lines, std::uint64_t bytes) {
    constexpr std::uint64_t kInterval = 256 * kMegabyte;
    if (bytes < told_ + kInterval) return;
    told_ = bytes;
    log::info("{} lines, {} MB read", lines, bytes / kMegabyte);
  }

 private:
  std::uint64_t told_ = 0;
};

std::function<void(std::int64_t, std::int64_t)> merging_progress() {
  auto progress = std::make_shared<ProgressLine>(
      ProgressLine::Options{.what = "learnt", .unit = "tokens", .line_seconds = 5});
  return [progress, known = std::int64_t{0}](std::int64_t done, std::int64_t all) mutable {
    if (known == 0) progress->expect(all);
    progress->add(done - known);
    known = done;
  };
}

std::int64_t workers_of(const Flags& flags) {
  constexpr std::int64_t kMost = 1024;
  const std::int64_t workers = flags.integer("--workers", 0);
  PENTATRON_CHECK(workers <= kMost, kConfig, "--workers {}: at most {}", workers, kMost);
  return workers > 0 ? workers : std::max(1U, std::thread::hardware_concurrency());
}

// One trainer a worker counts words, and the first one takes all in.
template <typename Trainer>
Trainer count_words(const Flags& flags, const std::function<Trainer()>& make) {
  std::deque<Trainer> trainers;
  const std::int64_t workers = workers_of(flags);
  for (std::int64_t i = 0; i < workers; ++i) trainers.push_back(make());
  datasets::read_lines_in_parallel(
      flags.texts("--input"), {.workers = workers, .progress = ReadingProgress()},
      [&](std::size_t worker, std::string_view line) { trainers[worker].add_text(line); });
  Trainer all = std::move(trainers.front());
  for (std::size_t i = 1; i < trainers.size(); ++i) all.absorb(std::move(trainers[i]));
  return all;
}

void train_bpe(const Flags& flags, const std::filesystem::path& folder) {
  const auto trainer =
      count_words<tokenizers::BpeTrainer>(flags, [] { return tokenizers::BpeTrainer(); });
  const tokenizers::BpeVocabulary vocabulary =
      trainer.train({.vocab_size = flags.integer("--vocab-size", 1),
                     .min_frequency = flags.integer("--min-frequency", 1),
                     .progress = merging_progress()});
  create_folders(folder);
  vocabulary.save(folder / "vocab.json", folder / "merges.txt");
  log::print_line(fmt::format("wrote {} and {}: {} tokens", (folder / "vocab.json").string(),
                              (folder / "merges.txt").string(), vocabulary.size()));
}

void train_word_piece(const Flags& flags, const std::filesystem::path& folder) {
  const bool lower_case = !flags.has("--cased");
  const auto trainer = count_words<tokenizers::WordPieceTrainer>(
      flags, [lower_case] { return tokenizers::WordPieceTrainer(lower_case); });
  const std::vector<std::string> tokens =
      trainer.train({.vocab_size = flags.integer("--vocab-size", 1),
                     .min_frequency = flags.integer("--min-frequency", 1),
                     .progress = merging_progress()});
  std::string text;
  for (const std::string& token : tokens) text += token + "\n";
  create_folders(folder);
  write_file_atomically(folder / "vocab.txt", text);
  log::print_line(fmt::format("wrote {}: {} tokens, for --tokenizer-type {}",
                              (folder / "vocab.txt").string(), tokens.size(),
                              lower_case ? "BertWordPieceLowerCase" : "BertWordPieceCase"));
}

void train_unigram_model(const Flags& flags, const std::filesystem::path& folder) {
  datasets::TextLines lines(flags.texts("--input"), tokenizers::kMaxUnigramSentence,
                            ReadingProgress());
  const std::string model =
      tokenizers::train_unigram([&](std::string_view& sentence) { return lines.next(sentence); },
                                {.vocab_size = flags.integer("--vocab-size", 1),
                                 .threads = workers_of(flags),
                                 .max_sentences = flags.integer("--max-sentences", 0),
                                 .character_coverage = flags.number("--character-coverage", 0)});
  if (lines.left_out() > 0) {
    log::warn("{} lines of more than {} bytes were left out", lines.left_out(),
              tokenizers::kMaxUnigramSentence);
  }
  create_folders(folder);
  write_file_atomically(folder / "tokenizer.model", model);
  log::print_line(fmt::format("wrote {}, for --tokenizer-type SentencePieceTokenizer",
                              (folder / "tokenizer.model").string()));
}

}  // namespace

int train_tokenizer(const Words& words) {
  const Flags flags(
      "train_tokenizer",
      "Trains a tokenizer on text files: a GPT-2 style byte-level BPE (FOLDER/vocab.json and "
      "merges.txt), a unigram model of SentencePiece (tokenizer.model), or a WordPiece vocabulary "
      "of BERT (vocab.txt).",
      {},
      {{"--input", "FILE", "text files, packed ones too; - is standard input", "", true, true},
       {"--kind", "KIND", "bpe, unigram or wordpiece", "bpe"},
       {"--vocab-size", "N", "tokens, special ones, bytes and characters included", "", true},
       {"--min-frequency", "N", "pairs seen less often are not merged (bpe, wordpiece)", "2"},
       {"--cased", "", "keep capitals and accents (wordpiece)"},
       {"--max-sentences", "N", "train on a sample of N lines; 0: all (unigram)", "10000000"},
       {"--character-coverage", "SHARE", "of the text, made of characters with a token (unigram)",
        "0.9995"},
       {"--workers", "N", "threads; 0: one a core", "0"},
       {"--output", "FOLDER", "where to write", "", true}},
      words);
  if (flags.help()) return 0;
  const std::string kind = flags.text("--kind");
  const auto only_for = [&](const char* name, bool fits) {
    PENTATRON_CHECK(fits || !flags.has(name), kConfig, "{} has no effect with --kind {}", name,
                    kind);
  };
  only_for("--min-frequency", kind != "unigram");
  only_for("--cased", kind == "wordpiece");
  only_for("--max-sentences", kind == "unigram");
  only_for("--character-coverage", kind == "unigram");
  const std::filesystem::path folder = flags.text("--output");
  if (kind == "bpe") {
    train_bpe(flags, folder);
  } else if (kind == "unigram") {
    train_unigram_model(flags, folder);
  } else if (kind == "wordpiece") {
    train_word_piece(flags, folder);
  } else {
    PENTATRON_THROW(kConfig, "--kind {}: expected bpe, unigram or wordpiece", kind);
  }
  return 0;
}

}  // namespace pentatron::apps
