// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/preprocess.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/datasets/indexed_dataset_writer.h"
#include "pentatron/datasets/jsonl.h"
#include "pentatron/datasets/line_reader.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {
namespace {

constexpr std::size_t kBatchBytes = 128 << 10;
constexpr std::int64_t kBadLinesShown = 10;

struct Problem {
  std::int64_t line = 0;
  JsonlProblem what;
};

// The documents of a batch of lines for one key, in order.
struct EncodedKey {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> lengths;    // of the sequences
  std::vector<std::int32_t> sequences;  // of each document; 0: an empty one
};

struct EncodedBatch {
  std::vector<EncodedKey> keys;
  std::vector<Problem> problems;
  std::int64_t documents = 0;
  std::int64_t lines = 0;
  std::int64_t blank_lines = 0;
  std::uint64_t bytes = 0;
  std::exception_ptr exception;  // anything but a bad line
};

// Turns lines into tokens; one per worker.
class Encoder final {
 public:
  Encoder(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer), parser_(options.json_keys) {}

  EncodedBatch encode(const LineBatch& lines) {
    EncodedBatch batch;
    batch.keys.resize(options_.json_keys.size());
    batch.lines = static_cast<std::int64_t>(lines.lines.size());
    batch.bytes = lines.bytes_read;
    for (const LineBatch::Line& line : lines.lines) {
      if (!line.too_long && is_blank(lines.text(line))) {
        ++batch.blank_lines;
        continue;
      }
      std::optional<JsonlProblem> problem = encode_line(lines, line, batch);
      if (!problem) {
        ++batch.documents;
        continue;
      }
      batch.problems.push_back({line.number, std::move(*problem)});
      if (!options_.skip_bad_lines) break;  // the run ends there
    }
    return batch;
  }

 private:
  std::optional<JsonlProblem> encode_line(const LineBatch& lines, const LineBatch::Line& line,
                                          EncodedBatch& batch) {
    if (line.too_long) {
      return JsonlProblem{1, fmt::format("longer than {} bytes", options_.max_line_bytes)};
    }
    if (auto problem = parser_.parse(lines.text(line))) return problem;
    // All keys first, so that a line that fails in its second key leaves nothing of the first.
    std::vector<std::vector<std::vector<std::int32_t>>> pieces(parser_.texts().size());
    try {
      for (std::size_t k = 0; k < pieces.size(); ++k) {
        for (const std::string_view text : parser_.texts()[k]) {
          std::vector<std::int32_t> tokens = tokenizer_.encode(text);
          if (!tokens.empty()) pieces[k].push_back(std::move(tokens));
        }
        if (options_.append_eod && !pieces[k].empty()) pieces[k].back().push_back(tokenizer_.eod());
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;
      return JsonlProblem{1, error.what()};
    }
    for (std::size_t k = 0; k < pieces.size(); ++k) {
      EncodedKey& key = batch.keys[k];
      for (const std::vector<std::int32_t>& tokens : pieces[k]) {
        key.tokens.insert(key.tokens.end(), tokens.begin(), tokens.end());
        key.lengths.push_back(static_cast<std::int32_t>(tokens.size()));
      }
      key.sequences.push_back(static_cast<std::int32_t>(pieces[k].size()));
    }
    return std::nullopt;
  }

  const PreprocessOptions& options_;
  const tokenizers::Tokenizer& tokenizer_;
  JsonlParser parser_;
};

// Workers take batches of lines in file order, encode them side by side, and hand them over in file
// order. At most a window of batches is under way, which bounds the memory.
class EncodePipeline final {
 public:
  EncodePipeline(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer)
      : reader_(options.input, options.max_line_bytes), window_(2 * options.workers + 1) {
    try {
      for (std::int64_t i = 0; i < options.workers; ++i) {
        threads_.emplace_back([this, &options, &tokenizer] { work(options, tokenizer); });
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  ~EncodePipeline() { stop(); }
  EncodePipeline(const EncodePipeline&) = delete;
  EncodePipeline& operator=(const EncodePipeline&) = delete;

  // The next batch in file order; none at the end.
  std::optional<EncodedBatch> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.contains(next_out_) || next_out_ == end_; });
    if (next_out_ == end_) return std::nullopt;
    EncodedBatch batch = std::move(done_.extract(next_out_).mapped());
    ++next_out_;
    lock.unlock();
    changed_.notify_all();
    if (batch.exception) std::rethrow_exception(batch.exception);
    return batch;
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  // Reads the next lines and numbers them; -1 when there is nothing left to do.
  std::int64_t read(LineBatch& lines) {
    const std::lock_guard reading(read_mutex_);
    std::int64_t id = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || end_ >= 0 || next_in_ - next_out_ < window_; });
      if (stopped_ || end_ >= 0) return -1;
      id = next_in_++;
    }
    try {
      lines = reader_.next_batch(kBatchBytes);
    } catch (...) {
      EncodedBatch failed;
      failed.exception = std::current_exception();
      deliver(id, std::move(failed));
      lines = LineBatch();
      ++id;
    }
    if (!lines.lines.empty()) return id;
    {
      const std::lock_guard lock(mutex_);
      end_ = id;
    }
    changed_.notify_all();
    return -1;
  }

  void deliver(std::int64_t id, EncodedBatch batch) {
    {
      const std::lock_guard lock(mutex_);
      done_.emplace(id, std::move(batch));
    }
    changed_.notify_all();
  }

  void work(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer) {
    Encoder encoder(options, tokenizer);
    LineBatch lines;
    for (std::int64_t id = read(lines); id >= 0; id = read(lines)) {
      EncodedBatch batch;
      try {
        batch = encoder.encode(lines);
      } catch (...) {
        batch.exception = std::current_exception();
      }
      deliver(id, std::move(batch));
    }
  }

  LineReader reader_;
  std::int64_t window_;
  std::mutex read_mutex_;  // taken before mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, EncodedBatch> done_;
  std::int64_t next_in_ = 0;
  std::int64_t next_out_ = 0;
  std::int64_t end_ = -1;  // number of batches, once known
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

void check_options(const PreprocessOptions& options) {
  PENTATRON_CHECK(!options.input.empty(), kConfig, "--input is missing: name a JSONL file");
  PENTATRON_CHECK(!options.output_prefix.empty(), kConfig, "--output-prefix is missing");
  PENTATRON_CHECK(options.workers >= 1 && options.workers <= 4096, kConfig,
                  "--workers {}: expected 1 to 4096", options.workers);
  PENTATRON_CHECK(options.log_interval >= 0, kConfig, "--log-interval {} is negative",
                  options.log_interval);
  PENTATRON_CHECK(!options.json_keys.empty(), kConfig, "--json-keys is empty: name a key");
  std::set<std::string> seen;
  for (const std::string& key : options.json_keys) {
    PENTATRON_CHECK(
        !key.empty() && key.find('/') == std::string::npos && key.find('\0') == std::string::npos,
        kConfig,
        "--json-keys \"{}\": a key is part of a file name; it may not be empty "
        "or hold a slash",
        key);
    PENTATRON_CHECK(seen.insert(key).second, kConfig, "--json-keys \"{}\" stands twice", key);
  }
}

// Counts, progress lines and the writers.
class CorpusWriter final {
 public:
  CorpusWriter(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer)
      : options_(options), start_(std::chrono::steady_clock::now()) {
    const TokenDtype dtype = dtype_for_vocabulary(tokenizer.vocab_size());
    for (const std::string& key : options.json_keys) {
      PreprocessStats::Key stats;
      stats.output_prefix = fmt::format("{}_{}_document", options.output_prefix, key);
      writers_.push_back(
          std::make_unique<IndexedDatasetWriter>(stats.output_prefix, dtype, options.force));
      stats_.keys.push_back(std::move(stats));
    }
  }

  void write(const EncodedBatch& batch) {
    for (std::size_t k = 0; k < writers_.size(); ++k) write_key(batch.keys[k], k);
    stats_.lines += batch.lines;
    stats_.blank_lines += batch.blank_lines;
    stats_.bytes += batch.bytes;
    for (const Problem& problem : batch.problems) report(problem);
    const std::int64_t before = documents_;
    documents_ += batch.documents;
    if (options_.log_interval > 0) show_progress(before);
  }

  PreprocessStats finish() {
    for (const PreprocessStats::Key& key : stats_.keys) {
      PENTATRON_CHECK(
          key.documents > 0, kData,
          "{} holds no document for {}: {} lines, {} blank, {} bad, {} documents without "
          "tokens",
          options_.input, key.output_prefix, stats_.lines, stats_.blank_lines, stats_.bad_lines,
          key.empty_documents);
    }
    for (const auto& writer : writers_) writer->finish();
    stats_.seconds = elapsed();
    return stats_;
  }

 private:
  void write_key(const EncodedKey& key, std::size_t k) {
    std::size_t token = 0;
    std::size_t sequence = 0;
    for (const std::int32_t count : key.sequences) {
      if (count == 0) {
        ++stats_.keys[k].empty_documents;
        continue;
      }
      for (std::int32_t i = 0; i < count; ++i, ++sequence) {
        const auto length = static_cast<std::size_t>(key.lengths[sequence]);
        writers_[k]->add_sequence(std::span(key.tokens).subspan(token, length));
        token += length;
      }
      writers_[k]->end_document();
      ++stats_.keys[k].documents;
    }
    stats_.keys[k].tokens += static_cast<std::int64_t>(token);
  }

  void report(const Problem& problem) {
    if (!options_.skip_bad_lines) {
      PENTATRON_THROW(kData, "{}:{}:{}: {} (--skip-bad-lines counts such lines instead)",
                      options_.input, problem.line, problem.what.column, problem.what.message);
    }
    ++stats_.bad_lines;
    if (stats_.bad_lines > kBadLinesShown) return;
    log::warn("{}:{}:{}: {}; line skipped{}", options_.input, problem.line, problem.what.column,
              problem.what.message,
              stats_.bad_lines == kBadLinesShown ? "; further ones are only counted" : "");
  }

  void show_progress(std::int64_t before) {
    const std::int64_t interval = options_.log_interval;
    for (std::int64_t at = (before / interval + 1) * interval; at <= documents_; at += interval) {
      const double seconds = std::max(elapsed(), 1e-9);
      const std::string line =
          fmt::format("Processed {} documents ({:.1f} docs/s, {:.2f} MB/s).", at,
                      static_cast<double>(at) / seconds,
                      static_cast<double>(stats_.bytes) / seconds / 1024 / 1024);
      if (options_.on_progress) {
        options_.on_progress(line);
      } else {
        log::info("{}", line);
      }
    }
  }

  [[nodiscard]] double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  const PreprocessOptions& options_;
  std::chrono::steady_clock::time_point start_;
  std::vector<std::unique_ptr<IndexedDatasetWriter>> writers_;
  PreprocessStats stats_;
  std::int64_t documents_ = 0;
};

}  // namespace

PreprocessStats preprocess(const PreprocessOptions& options,
                           const tokenizers::Tokenizer& tokenizer) {
  check_options(options);
  EncodePipeline pipeline(options, tokenizer);  // opens the input before any output is made
  CorpusWriter writer(options, tokenizer);
  while (std::optional<EncodedBatch> batch = pipeline.next()) writer.write(*batch);
  return writer.finish();
}

}  // namespace pentatron::datasets
