// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/score_file.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/base/progress_line.h"
#include "pentatron/base/timer.h"
#include "pentatron/comm/group.h"
#include "pentatron/datasets/corpus_reader.h"
#include "pentatron/inference/logits_file.h"
#include "pentatron/inference/score_line.h"

namespace pentatron::inference {
namespace {

namespace fs = std::filesystem;

// Documents and tokens that are scored together: enough to fill forwards, little to hold.
constexpr std::size_t kDocuments = 512;
constexpr std::size_t kTokens = 1 << 18;
constexpr std::size_t kReadBytes = 1 << 18;
constexpr std::int64_t kBadLinesShown = 10;

void check_output(const std::string& path, bool force, const char* option) {
  if (path.empty() || path == "-" || !fs::exists(path)) return;
  PENTATRON_CHECK(fs::is_regular_file(path), kConfig,
                  "{} {}: there, and no plain file; - writes to standard output", option, path);
  PENTATRON_CHECK(force, kConfig, "{} {}: exists already; --force replaces it", option, path);
}

// Where result lines go.
class Output final {
 public:
  explicit Output(const std::string& path) {
    if (path != "-") file_ = std::make_unique<AtomicFile>(path);
  }
  void write(std::string line) {
    if (file_ == nullptr) return log::print_line(line);
    line += '\n';
    file_->write(line);
  }
  void finish() {
    if (file_ != nullptr) file_->commit();
  }

 private:
  std::unique_ptr<AtomicFile> file_;
};

// Rank 0's side of the work.
class FileScorer final {
 public:
  FileScorer(const ScoreFileOptions& options, DocumentScorer& scorer,
             const tokenizers::Tokenizer& tokenizer, bool single_precision)
      : options_(options),
        scorer_(scorer),
        tokenizer_(tokenizer),
        single_precision_(single_precision),
        files_(datasets::list_inputs(options.inputs, "")),
        reader_(files_, {.max_line_bytes = options.max_line_bytes,
                         .stop_at_too_long = options.on_bad_line == datasets::OnBadLine::kStop}) {
    check_output(options.output, options.force, "--output");
    check_output(options.logits, options.force, "--logits");
    output_.emplace(options.output);
    if (!options.logits.empty()) {
      logits_.emplace(options.logits, scorer.vocab_size(), options.max_logits_bytes);
    }
    for (const datasets::InputFile& file : files_) {
      all_bytes_ = file.bytes && all_bytes_ ? std::optional(*all_bytes_ + *file.bytes)
                                            : std::optional<std::uint64_t>();
    }
  }

  ScoreFileStats run() {
    for (datasets::CorpusBatch batch = reader_.next_batch(kReadBytes); !batch.lines.lines.empty();
         batch = reader_.next_batch(kReadBytes)) {
      for (const datasets::LineBatch::Line& line : batch.lines.lines) {
        read(batch, line);
        // Logits are taken in one by one, so that few are held twice.
        if (lines_.size() >= (logits_ ? 1 : kDocuments) || num_tokens_ >= kTokens) {
          flush(batch.file_bytes);
        }
      }
    }
    flush(all_bytes_.value_or(0));
    (void)scorer_.score({});  // the others may go
    if (logits_) logits_->finish();
    output_->finish();
    return stats_;
  }

 private:
  void read(const datasets::CorpusBatch& batch, const datasets::LineBatch::Line& line) {
    const std::string_view text = batch.lines.text(line);
    if (line.too_long) {
      return refuse(
          batch, line,
          {1, fmt::format("longer than --max-line-mb {}", options_.max_line_bytes >> 20)});
    }
    if (datasets::is_blank(text)) return;
    auto result = read_score_line(
        text, tokenizer_, {.vocab_size = scorer_.vocab_size(), .add_bos = options_.add_bos});
    if (const auto* problem = std::get_if<datasets::JsonlProblem>(&result)) {
      return refuse(batch, line, *problem);
    }
    ScoreLine& document = std::get<ScoreLine>(result);
    const auto count = static_cast<std::int64_t>(document.tokens.size());
    if (!scorer_.fits(count)) {
      return refuse(batch, line,
                    {1, fmt::format("{} tokens, {} fit; --stride scores longer documents in "
                                    "windows",
                                    count, scorer_.max_tokens())});
    }
    num_tokens_ += document.tokens.size();
    lines_.push_back(std::move(document));
  }

  void refuse(const datasets::CorpusBatch& batch, const datasets::LineBatch::Line& line,
              const datasets::JsonlProblem& problem) {
    const std::string what = fmt::format("{}:{}:{}: {}", files_[batch.file].name(), line.number,
                                         problem.column, problem.message);
    if (options_.on_bad_line == datasets::OnBadLine::kStop) {
      PENTATRON_THROW(kData, "{} (--on-bad-line skip leaves such lines out)", what);
    }
    ++stats_.bad_lines;
    const bool all = options_.on_bad_line == datasets::OnBadLine::kReport;
    if (!all && stats_.bad_lines > kBadLinesShown) return;
    log::warn("{}; line left out{}", what,
              !all && stats_.bad_lines == kBadLinesShown
                  ? "; further ones are only counted (--on-bad-line report names them all)"
                  : "");
  }

  void flush(std::uint64_t file_bytes) {
    if (lines_.empty()) return;
    const std::int64_t documents_before = stats_.documents;
    std::vector<std::vector<std::int32_t>> documents;
    for (const ScoreLine& line : lines_) {
      if (logits_) logits_->check_room(static_cast<std::int64_t>(line.tokens.size()));
      documents.push_back(line.tokens);
    }
    std::vector<SequenceScores> scores = scorer_.score(documents);
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      output_->write(write_score_line(lines_[i], scores[i], single_precision_));
      if (logits_) logits_->add(std::move(scores[i].logits));
      ++stats_.documents;
      stats_.tokens += static_cast<std::int64_t>(scores[i].logprobs.size());
      for (const double logprob : scores[i].logprobs) stats_.sum += logprob;
    }
    lines_.clear();
    num_tokens_ = 0;
    progress_.add(stats_.documents - documents_before);
    progress_.note(fmt::format("{} tokens/s", short_number(static_cast<double>(stats_.tokens) /
                                                           std::max(1e-9, timer_.seconds()))));
    if (all_bytes_.value_or(0) == 0) return;
    progress_.set_share(static_cast<double>(file_bytes) / static_cast<double>(*all_bytes_));
  }

  const ScoreFileOptions& options_;
  DocumentScorer& scorer_;
  const tokenizers::Tokenizer& tokenizer_;
  bool single_precision_;
  std::vector<datasets::InputFile> files_;
  datasets::CorpusReader reader_;
  std::optional<Output> output_;
  std::optional<LogitsFile> logits_;
  std::optional<std::uint64_t> all_bytes_ = 0;  // of the files; unset: pipes
  std::vector<ScoreLine> lines_;                // not scored yet
  std::size_t num_tokens_ = 0;                  // in them
  ScoreFileStats stats_;
  ProgressLine progress_{{.what = "scored", .unit = "documents", .line_seconds = 0}};
  Timer timer_;
};

}  // namespace

ScoreFileStats score_files(const ScoreFileOptions& options, DocumentScorer& scorer,
                           const tokenizers::Tokenizer& tokenizer, LoadedModel& model) {
  if (model.context->world().rank() != 0) {
    scorer.follow();
    return {};
  }
  return FileScorer(options, scorer, tokenizer, model.policy.statistics != kAccumulationDType)
      .run();
}

}  // namespace pentatron::inference
