// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sentence_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/datasets/token_reading.h"

namespace pentatron::datasets {
namespace {

// Draws the lengths that samples are cut to.
class TargetLengths final {
 public:
  explicit TargetLengths(const SentenceIndexOptions& options)
      : engine_(static_cast<std::uint32_t>(options.seed)),
        max_tokens_(static_cast<std::uint32_t>(options.max_tokens)) {
    if (options.short_sequence_probability > 0) {
      // A probability so small that its ratio has no int32 never happens.
      const double ratio = std::round(1.0 / options.short_sequence_probability);
      if (ratio <= std::numeric_limits<std::int32_t>::max()) {
        ratio_ = static_cast<std::uint32_t>(ratio);
      }
    }
  }
  [[nodiscard]] std::int32_t next() {
    if (ratio_ == 0) return static_cast<std::int32_t>(max_tokens_);
    const auto draw = static_cast<std::uint32_t>(engine_());
    const std::uint32_t target = draw % ratio_ == 0 ? 2 + draw % (max_tokens_ - 1) : max_tokens_;
    return static_cast<std::int32_t>(target);
  }

 private:
  std::mt19937 engine_;
  std::uint32_t ratio_ = 0;  // one of so many samples is short; 0: none
  std::uint32_t max_tokens_;
};

bool usable(const IndexedDataset& corpus, std::int64_t begin, std::int64_t end,
            std::int64_t min_sentences) {
  if (end - begin < min_sentences) return false;
  if (end - begin < 2) return true;  // a single sentence may have any length
  for (std::int64_t i = begin; i < end; ++i) {
    if (corpus.sequence_length(i) > kLongestSentence) return false;
  }
  return true;
}

void cut_document(const IndexedDataset& corpus, std::pair<std::int64_t, std::int64_t> document,
                  std::int64_t min_sentences, TargetLengths& targets,
                  std::vector<SentenceSpan>& index) {
  const auto [begin, end] = document;
  std::int32_t target = targets.next();
  std::int64_t first = begin;
  std::int64_t tokens = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    tokens += corpus.sequence_length(i);
    const std::int64_t left = end - i - 1;
    const bool full = tokens >= target && left > 1 && i + 1 - first >= min_sentences;
    if (!full && left > 0) continue;
    PENTATRON_CHECK(i + 1 - first <= std::numeric_limits<std::int32_t>::max(), kData,
                    "{}: {} sentences without a token in one document", corpus.name(),
                    i + 1 - first);
    index.push_back(
        {.begin = first, .count = static_cast<std::int32_t>(i + 1 - first), .target = target});
    first = i + 1;
    tokens = 0;
    target = targets.next();  // after the last sentence, too
  }
}

void shuffle(std::vector<SentenceSpan>& index, std::int64_t seed) {
  std::mt19937_64 engine(static_cast<std::uint64_t>(seed + 1));
  for (std::size_t i = index.size(); i-- > 1;) std::swap(index[i], index[engine() % (i + 1)]);
}

}  // namespace

void check_sentence_options(const IndexedDataset& corpus, const SentenceIndexOptions& options) {
  PENTATRON_CHECK(options.document_begin >= 0 && options.document_begin <= options.document_end &&
                      options.document_end <= corpus.num_documents(),
                  kInternal, "{}: documents {} to {} of {}", corpus.name(), options.document_begin,
                  options.document_end, corpus.num_documents());
  PENTATRON_CHECK(
      options.max_tokens >= 2 && options.max_tokens <= std::numeric_limits<std::int32_t>::max(),
      kConfig, "samples of {} tokens: --seq-length leaves too few, or too many, for the text",
      options.max_tokens);
  PENTATRON_CHECK(
      options.short_sequence_probability >= 0 && options.short_sequence_probability <= 1, kConfig,
      "--short-seq-prob {}: expected 0 to 1", options.short_sequence_probability);
  PENTATRON_CHECK(options.seed >= 1 && options.seed < std::numeric_limits<std::int32_t>::max(),
                  kConfig, "--seed {} cannot seed samples of sentences: expected 1 to 2147483646",
                  options.seed);
  PENTATRON_CHECK(options.min_sentences >= 1 && options.num_samples.value_or(0) >= 0, kInternal,
                  "{} sentences a sample, {} samples", options.min_sentences,
                  options.num_samples.value_or(0));
}

std::vector<SentenceSpan> build_sentence_index(const IndexedDataset& corpus,
                                               const SentenceIndexOptions& options) {
  check_sentence_options(corpus, options);
  std::vector<SentenceSpan> index;
  TargetLengths targets(options);
  const auto enough = [&] {
    return options.num_samples && std::ssize(index) >= *options.num_samples;
  };
  for (bool first_epoch = true; !enough(); first_epoch = false) {
    if (!first_epoch && !options.num_samples) break;
    for (std::int64_t d = options.document_begin; d < options.document_end; ++d) {
      const auto document = corpus.document_range(d);
      if (usable(corpus, document.first, document.second, options.min_sentences)) {
        cut_document(corpus, document, options.min_sentences, targets, index);
      }
    }
    PENTATRON_CHECK(!index.empty(), kData,
                    "{}: none of the {} documents has {} sentences or more, each of {} tokens at "
                    "most; was it made by preprocess_data --split-sentences?",
                    corpus.name(), options.document_end - options.document_begin,
                    options.min_sentences, kLongestSentence);
  }
  shuffle(index, options.seed);
  return index;
}

std::int64_t count_tokens(const IndexedDataset& corpus, const SentenceSpan& span) {
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < span.count; ++i) tokens += corpus.sequence_length(span.begin + i);
  return tokens;
}

std::vector<std::int64_t> read_sentences(const IndexedDataset& corpus, const SentenceSpan& span,
                                         std::int64_t begin, std::int64_t end,
                                         std::int64_t vocab_size) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(end - begin));
  const std::span<std::int64_t> all(tokens);
  std::int64_t at = 0;  // where a sentence begins in the span
  for (std::int64_t i = span.begin; i < span.begin + span.count && at < end; ++i) {
    const std::int64_t length = corpus.sequence_length(i);
    const std::int64_t from = std::max(begin, at);
    const std::int64_t to = std::min(end, at + length);
    if (from < to) {
      const auto part =
          all.subspan(static_cast<std::size_t>(from - begin), static_cast<std::size_t>(to - from));
      read_tokens(corpus, i, from - at, part, vocab_size);
    }
    at += length;
  }
  return tokens;
}

}  // namespace pentatron::datasets
