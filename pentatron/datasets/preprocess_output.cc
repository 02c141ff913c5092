// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/preprocess_output.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/sha256.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {
namespace {

constexpr std::int64_t kBadLinesShown = 10;

// Everything that decides the bytes of the output. What is done with bad lines is left out: a run
// that one of them ended may go on by skipping it.
std::string identity_of(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer,
                        const std::vector<InputFile>& files) {
  Sha256 hash;
  hash.update(tokenizer.identity_hash());
  hash.update(fmt::format(" {} {} {} {}\n", options.split_sentences, options.keep_newlines,
                          options.append_eod, options.max_line_bytes));
  for (const std::string& key : options.json_keys) {
    hash.update(fmt::format("{}:{}\n", key.size(), key));
  }
  for (const InputFile& file : files) {
    hash.update(fmt::format("{}:{} {} {} {}\n", file.path.size(), file.path,
                            static_cast<int>(file.format), *file.bytes, file.modified_ns));
  }
  return hash.hex_digest();
}

std::optional<std::uint64_t> sum_of_bytes(const std::vector<InputFile>& files) {
  std::uint64_t sum = 0;
  for (const InputFile& file : files) {
    if (!file.bytes) return std::nullopt;
    sum += *file.bytes;
  }
  return sum;
}

std::string time_text(double seconds) {
  constexpr double kMaxHours = 99999;
  const std::int64_t whole = std::llround(std::min(seconds, kMaxHours * 3600));
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

PreprocessOutput::PreprocessOutput(const PreprocessOptions& options,
                                   const tokenizers::Tokenizer& tokenizer,
                                   const std::vector<InputFile>& files)
    : options_(options),
      files_(files),
      start_time_(std::chrono::steady_clock::now()),
      all_file_bytes_(sum_of_bytes(files)) {
  const char* const level = options.split_sentences ? "sentence" : "document";
  for (const std::string& key : options.json_keys) {
    stats_.keys.emplace_back().output_prefix =
        fmt::format("{}_{}_{}", options.output_prefix, key, level);
    if (!options.force) IndexedDatasetWriter::refuse_existing(stats_.keys.back().output_prefix);
  }
  if (options.resume) {
    PENTATRON_CHECK(all_file_bytes_, kConfig,
                    "--resume needs files that can be read again: not standard input or a pipe");
    partial_.emplace(options.output_prefix, identity_of(options, tokenizer, files));
  } else if (std::filesystem::exists(PartialRun::folder_of(options.output_prefix))) {
    log::warn("{} holds an unfinished run that --resume would go on with; starting anew",
              PartialRun::folder_of(options.output_prefix).string());
  }
  open_writers(dtype_for_vocabulary(tokenizer.vocab_size()));
}

void PreprocessOutput::open_writers(TokenDtype dtype) {
  const auto open = [&] {
    writers_.clear();
    for (const PreprocessStats::Key& key : stats_.keys) {
      const WrittenCounts counts{key.sequences, key.documents, key.tokens};
      writers_.push_back(
          partial_
              ? std::make_unique<IndexedDatasetWriter>(key.output_prefix, dtype, options_.force,
                                                       partial_->folder(), counts)
              : std::make_unique<IndexedDatasetWriter>(key.output_prefix, dtype, options_.force));
    }
  };
  if (!partial_ || !partial_->state()) return open();
  const PreprocessStats fresh = stats_;
  const PartialRun::State& earlier = *partial_->state();
  stats_ = earlier.stats;
  try {
    open();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kData) throw;
    log::warn("{}: starting again: {}", partial_->folder().string(), error.what());
    stats_ = fresh;
    return open();
  }
  place_ = earlier.place;
  bytes_before_ = bytes_at_checkpoint_ = stats_.bytes;
  log::info("going on at {}:{}, after {} documents", files_.at(place_.file).name(),
            place_.in_file.line, stats_.keys.front().documents);
}

void PreprocessOutput::write(const EncodedBatch& batch) {
  const bool stops = options_.on_bad_line == OnBadLine::kStop && !batch.problems.empty();
  if (stops && partial_) checkpoint();
  for (const LineProblem& problem : batch.problems) report(batch, problem);
  for (std::size_t k = 0; k < writers_.size(); ++k) write_key(batch.keys[k], k);
  stats_.lines += batch.lines;
  stats_.blank_lines += batch.blank_lines;
  stats_.bytes += batch.bytes;
  place_ = batch.end;
  if (!first_file_bytes_) first_file_bytes_ = batch.file_bytes;
  file_bytes_ = batch.file_bytes;
  const std::int64_t before = documents_;
  documents_ += batch.documents;
  if (options_.log_interval > 0) show_progress(before);
  if (partial_ && stats_.bytes - bytes_at_checkpoint_ >= options_.checkpoint_bytes) checkpoint();
}

void PreprocessOutput::checkpoint() {
  for (const auto& writer : writers_) (void)writer->checkpoint();
  partial_->save({place_, stats_});
  bytes_at_checkpoint_ = stats_.bytes;
}

PreprocessStats PreprocessOutput::finish() {
  for (const PreprocessStats::Key& key : stats_.keys) {
    PENTATRON_CHECK(
        key.documents > 0, kData,
        "{} holds no document for {}: {} lines, {} blank, {} bad, {} documents without tokens",
        files_.size() == 1
            ? std::string(files_[0].name())
            : fmt::format("{} and {} more files", files_[0].name(), files_.size() - 1),
        key.output_prefix, stats_.lines, stats_.blank_lines, stats_.bad_lines, key.empty_documents);
  }
  show_all();
  if (partial_) partial_->remove();
  stats_.seconds = elapsed();
  return stats_;
}

// Corpora of all keys, or, on a full disk, of none.
void PreprocessOutput::show_all() {
  for (const auto& writer : writers_) writer->seal();
  std::size_t shown = 0;
  try {
    for (; shown < writers_.size(); ++shown) writers_[shown]->finish();
  } catch (const Error&) {
    while (shown > 0) writers_[--shown]->hide();
    throw;
  }
}

void PreprocessOutput::write_key(const EncodedKey& key, std::size_t k) {
  PreprocessStats::Key& stats = stats_.keys[k];
  std::size_t token = 0;
  std::size_t sequence = 0;
  for (const std::int32_t count : key.sequences) {
    if (count == 0) {
      ++stats.empty_documents;
      continue;
    }
    for (std::int32_t i = 0; i < count; ++i, ++sequence) {
      const auto length = static_cast<std::size_t>(key.lengths[sequence]);
      writers_[k]->add_sequence(std::span(key.tokens).subspan(token, length));
      token += length;
    }
    writers_[k]->end_document();
    ++stats.documents;
  }
  stats.sequences += static_cast<std::int64_t>(sequence);
  stats.tokens += static_cast<std::int64_t>(token);
}

void PreprocessOutput::report(const EncodedBatch& batch, const LineProblem& problem) {
  const std::string what = fmt::format("{}:{}:{}: {}", files_[batch.file].name(), problem.line,
                                       problem.what.column, problem.what.message);
  if (options_.on_bad_line == OnBadLine::kStop) {
    PENTATRON_THROW(kData, "{} (--on-bad-line skip counts such lines instead)", what);
  }
  ++stats_.bad_lines;
  const bool all = options_.on_bad_line == OnBadLine::kReport;
  if (!all && stats_.bad_lines > kBadLinesShown) return;
  log::warn("{}; line skipped{}", what,
            !all && stats_.bad_lines == kBadLinesShown
                ? "; further ones are only counted (--on-bad-line report names them all)"
                : "");
}

void PreprocessOutput::show_progress(std::int64_t documents_before) {
  const std::int64_t interval = options_.log_interval;
  for (std::int64_t at = (documents_before / interval + 1) * interval; at <= documents_;
       at += interval) {
    const std::string line = progress_line(at);
    if (options_.on_progress) {
      options_.on_progress(line);
    } else {
      log::info("{}", line);
    }
  }
}

std::string PreprocessOutput::progress_line(std::int64_t documents) const {
  const double seconds = std::max(elapsed(), 1e-9);
  std::string line =
      fmt::format("Processed {} documents ({:.1f} docs/s, {:.2f} MB/s).", documents,
                  static_cast<double>(documents) / seconds,
                  static_cast<double>(stats_.bytes - bytes_before_) / seconds / 1024 / 1024);
  // From what has been used of the files, packed or not; the first batch stands for no time yet.
  if (!all_file_bytes_ || *all_file_bytes_ == 0) return line;
  const auto all = static_cast<double>(*all_file_bytes_);
  line += fmt::format(" {:.1f} % of the input", 100 * static_cast<double>(file_bytes_) / all);
  if (file_bytes_ > *first_file_bytes_) {
    const auto done = static_cast<double>(file_bytes_ - *first_file_bytes_);
    line += fmt::format(", {} left",
                        time_text(seconds * (all - static_cast<double>(file_bytes_)) / done));
  }
  return line + ".";
}

double PreprocessOutput::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time_).count();
}

}  // namespace pentatron::datasets
