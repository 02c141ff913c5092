// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "apps/command.h"
#include "apps/tokenizer_flags.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/progress_line.h"
#include "pentatron/datasets/preprocess.h"

namespace pentatron::apps {
namespace {

constexpr std::int64_t kMaxLineMegabytes = 4095;  // the JSON library's limit is 4 GiB

std::vector<Flags::Spec> specs() {
  std::vector<Flags::Spec> all = {
      {"--input", "FILE",
       "JSON lines: files, folders, patterns, or - for standard input; .gz, .zst, .bz2, .xz or "
       "plain",
       "", true, true},
      {"--output-prefix", "PREFIX", "begin of the output names", "", true},
      {"--json-keys", "KEY", "keys that hold text; each gives a corpus", "text", false, true},
      {"--txt-documents", "line|file", "what is a document in files named .txt", ""},
      {"--split-sentences", "", "every sentence becomes a sequence: PREFIX_KEY_sentence"},
      {"--keep-newlines", "", "with --split-sentences: sentences keep the white space after them"},
      {"--lang", "LANGUAGE", "of --split-sentences: english", "english"},
      {"--append-eod", "", "end every document with the end-of-document token"},
      {"--workers", "N", "threads that tokenise", "1"},
      {"--partitions", "N", "must divide --workers; the output is the same for any number", "1"},
      {"--keep-sequential-samples", "", "always so: documents keep the order of the input"},
      {"--log-interval", "N", "documents between progress lines; 0: none", "1000"},
      {"--on-bad-line", "stop|skip|report",
       "a line that cannot be used ends the run, is counted, or is counted and named", "stop"},
      {"--skip-bad-lines", "", "the same as --on-bad-line skip"},
      {"--max-line-mb", "N", "longest line in MiB", "256"},
      {"--resume", "", "keep an interrupted run in PREFIX.partial, and go on with it"},
      {"--force", "", "replace existing output"},
      {"--find-optimal-num-workers", "", "measure --workers-to-check and write nothing"},
      {"--workers-to-check", "N", "numbers of workers to measure", "", false, true},
      {"--max-documents", "N", "documents of each measurement", "100000"},
      {"--dataset-impl", "mmap", "format of the output: mmap", "mmap"}};
  for (Flags::Spec& spec : tokenizer_flags(true)) all.push_back(std::move(spec));
  return all;
}

datasets::OnBadLine on_bad_line(const Flags& flags) {
  const std::string value = flags.text("--on-bad-line");
  if (flags.has("--skip-bad-lines")) {
    PENTATRON_CHECK(!flags.has("--on-bad-line") || value == "skip", kConfig,
                    "--skip-bad-lines means --on-bad-line skip, but --on-bad-line is {}", value);
    return datasets::OnBadLine::kSkip;
  }
  if (value == "stop") return datasets::OnBadLine::kStop;
  if (value == "skip") return datasets::OnBadLine::kSkip;
  PENTATRON_CHECK(value == "report", kConfig,
                  "--on-bad-line must be stop, skip or report, got '{}'", value);
  return datasets::OnBadLine::kReport;
}

void check_fixed(const Flags& flags) {
  const std::string language = flags.text("--lang");
  PENTATRON_CHECK(language == "english", kUnsupported,
                  "--lang {}: sentences are split by the rules of english only; text that is split "
                  "already, as an array of strings under a key, needs no --split-sentences",
                  language);
  PENTATRON_CHECK(!flags.has("--lang") || flags.has("--split-sentences"), kConfig,
                  "--lang has no effect without --split-sentences");
  PENTATRON_CHECK(flags.text("--dataset-impl") == "mmap", kConfig,
                  "--dataset-impl must be mmap, got '{}'", flags.text("--dataset-impl"));
  for (const char* const name : {"--workers-to-check", "--max-documents"}) {
    PENTATRON_CHECK(!flags.has(name) || flags.has("--find-optimal-num-workers"), kConfig,
                    "{} has no effect without --find-optimal-num-workers", name);
  }
}

datasets::PreprocessOptions options_of(const Flags& flags) {
  check_fixed(flags);
  const std::int64_t line_megabytes = flags.integer("--max-line-mb", 1);
  PENTATRON_CHECK(line_megabytes <= kMaxLineMegabytes, kConfig, "--max-line-mb {}: at most {}",
                  line_megabytes, kMaxLineMegabytes);
  return {.inputs = flags.texts("--input"),
          .txt_documents = flags.text("--txt-documents"),
          .json_keys = flags.texts("--json-keys"),
          .split_sentences = flags.has("--split-sentences"),
          .keep_newlines = flags.has("--keep-newlines"),
          .append_eod = flags.has("--append-eod"),
          .workers = flags.integer("--workers", 1),
          .partitions = flags.integer("--partitions", 1),
          .output_prefix = flags.text("--output-prefix"),
          .log_interval = flags.integer("--log-interval", 0),
          .on_bad_line = on_bad_line(flags),
          .force = flags.has("--force"),
          .resume = flags.has("--resume"),
          .max_line_bytes = static_cast<std::uint64_t>(line_megabytes) << 20};
}

int find_workers(const Flags& flags, const datasets::PreprocessOptions& options,
                 const tokenizers::Tokenizer& tokenizer) {
  std::vector<std::int64_t> counts;
  for (const std::string& word : flags.texts("--workers-to-check")) {
    counts.push_back(parse_integer("--workers-to-check", word, 1));
  }
  if (counts.empty()) counts = {16, 32, 64};
  const std::vector<datasets::WorkerRate> rates =
      datasets::measure_workers(options, tokenizer, counts, flags.integer("--max-documents", 1));
  for (const datasets::WorkerRate& rate : rates) {
    log::print_line(fmt::format("{} workers: {:.1f} docs/s ({} documents)", rate.workers,
                                rate.documents_per_second, rate.documents));
  }
  const auto best = std::max_element(rates.begin(), rates.end(), [](const auto& a, const auto& b) {
    return a.documents_per_second < b.documents_per_second;
  });
  log::print_line(fmt::format("fastest: --workers {}", best->workers));
  return 0;
}

}  // namespace

int preprocess_data(const Words& words) {
  const Flags flags("preprocess_data",
                    "Tokenises text into PREFIX_KEY_document.bin and .idx, one pair a key.", {},
                    specs(), words);
  if (flags.help()) return 0;
  datasets::PreprocessOptions options = options_of(flags);
  const auto tokenizer = tokenizer_of(flags);
  if (flags.has("--find-optimal-num-workers")) return find_workers(flags, options, *tokenizer);
  datasets::PreprocessStats stats;
  {
    StatusText status;  // gone before the result is told
    options.on_progress = [&status](std::string_view line) { status.show(std::string(line)); };
    stats = datasets::preprocess(options, *tokenizer);
  }
  for (const auto& key : stats.keys) {
    log::print_line(
        fmt::format("{}.bin, .idx: {} documents, {} tokens, {} empty documents left out",
                    key.output_prefix, key.documents, key.tokens, key.empty_documents));
  }
  log::info("{} lines, {:.1f} MB in {:.1f} s", stats.lines, static_cast<double>(stats.bytes) / 1e6,
            stats.seconds);
  if (stats.bad_lines > 0)
    log::warn("{} of {} lines were skipped as bad", stats.bad_lines, stats.lines);
  return 0;
}

}  // namespace pentatron::apps
