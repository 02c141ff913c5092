// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/evaluate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/base/progress_line.h"
#include "pentatron/datasets/byte_source.h"
#include "pentatron/datasets/jsonl.h"
#include "pentatron/datasets/line_reader.h"
#include "pentatron/inference/score_line.h"
#include "pentatron/inference/wikitext_detokenizer.h"
#include "pentatron/tokenizers/white_space.h"

namespace pentatron::inference {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr double kMaxExponent = 20;
constexpr std::uint64_t kMaxTextBytes = 1ULL << 30;  // of a text that is scored as one
constexpr std::size_t kDocuments = 512;              // scored together
constexpr std::size_t kReadBytes = 1 << 18;

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

std::string read_text(const std::string& file) {
  const auto source = datasets::open_byte_source(file);
  std::string text;
  std::vector<char> chunk(kReadBytes);
  while (const std::size_t size = source->read(chunk)) {
    PENTATRON_CHECK(text.size() + size <= kMaxTextBytes, kData,
                    "{}: more than {} MiB; a text that is scored as one must be smaller", file,
                    kMaxTextBytes >> 20);
    text.append(chunk.data(), size);
  }
  if (const auto offset = datasets::invalid_utf8_offset(text)) {
    PENTATRON_THROW(kData, "{}: byte {} is not valid UTF-8", file, *offset);
  }
  return text;
}

// Lines with "text", one after the other. What `take` gives back is wrong with the line.
using TakeText = std::function<std::optional<std::string>(std::string text)>;
void for_each_text(const std::string& file, const TakeText& take) {
  datasets::LineReader reader(datasets::open_byte_source(file), {.stop_at_too_long = true});
  for (datasets::LineBatch batch = reader.next_batch(kReadBytes); !batch.lines.empty();
       batch = reader.next_batch(kReadBytes)) {
    for (const datasets::LineBatch::Line& line : batch.lines) {
      PENTATRON_CHECK(!line.too_long, kData, "{}:{}:1: longer than 256 MiB", file, line.number);
      if (datasets::is_blank(batch.text(line))) continue;
      auto read = read_text_line(batch.text(line));
      auto* problem = std::get_if<datasets::JsonlProblem>(&read);
      if (problem == nullptr) {
        const auto wrong = take(std::move(std::get<std::string>(read)));
        if (!wrong) continue;
        problem = &read.emplace<datasets::JsonlProblem>(datasets::JsonlProblem{1, *wrong});
      }
      PENTATRON_THROW(kData, "{}:{}:{}: {}", file, line.number, problem->column, problem->message);
    }
  }
}

bool holds_json_lines(std::string_view name) {
  for (const std::string_view ending : datasets::compressed_endings()) {
    if (name.ends_with(ending)) name.remove_suffix(ending.size());
  }
  return name.ends_with(".jsonl") || name.ends_with(".ndjson") || name.ends_with(".json");
}

// Documents of rank 0 in groups; the other ranks follow.
class Groups final {
 public:
  using Take = std::function<void(std::size_t first, const std::vector<SequenceScores>& scores)>;
  Groups(DocumentScorer& scorer, Take take) : scorer_(scorer), take_(std::move(take)) {}

  // Wrong with it when it does not fit.
  [[nodiscard]] std::optional<std::string> add(Tokens tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    if (!scorer_.fits(count)) {
      return fmt::format("{} tokens, {} fit the model", count, scorer_.max_tokens());
    }
    documents_.push_back(std::move(tokens));
    if (documents_.size() == kDocuments) score();
    return std::nullopt;
  }
  void finish() {
    score();
    (void)scorer_.score({});  // the other ranks may go
  }
  [[nodiscard]] std::size_t size() const { return done_ + documents_.size(); }

 private:
  void score() {
    if (documents_.empty()) return;
    take_(done_, scorer_.score(documents_));
    done_ += documents_.size();
    progress_.add(static_cast<std::int64_t>(documents_.size()));
    documents_.clear();
  }

  DocumentScorer& scorer_;
  Take take_;
  std::vector<Tokens> documents_;
  std::size_t done_ = 0;
  ProgressLine progress_{{.what = "scored", .unit = "documents", .line_seconds = 0}};
};

// Without the beginning-of-sequence token that some tokenizers put before each text; text itself
// never becomes one.
Tokens encode_plain(const tokenizers::Tokenizer& tokenizer, std::string_view text) {
  Tokens tokens = tokenizer.encode(text);
  if (!tokens.empty() && tokens.front() == tokenizer.bos()) tokens.erase(tokens.begin());
  return tokens;
}

struct ClozeExample {
  Tokens tokens;  // the target's last
  std::size_t num_targets = 0;
};

// Nothing when the text has no target behind a context.
std::optional<ClozeExample> cloze_of(const std::string& text, bool strict,
                                     const tokenizers::Tokenizer& tokenizer) {
  ClozeExample example;
  if (!strict) {
    example = {tokenizer.encode(text), 1};
    return example.tokens.size() < 2 ? std::nullopt : std::optional(example);
  }
  const std::string word(tokenizers::last_word(text));
  if (word.empty()) return std::nullopt;
  example.tokens =
      tokenizer.encode(tokenizers::stripped(std::string_view(text).substr(0, text.rfind(word))));
  if (example.tokens.empty()) return std::nullopt;
  const Tokens target = encode_plain(tokenizer, " " + word);
  example.num_targets = target.size();
  example.tokens.insert(example.tokens.end(), target.begin(), target.end());
  return example;
}

}  // namespace

EvaluationNumbers evaluate_wikitext(const std::string& file, DocumentScorer& scorer,
                                    const tokenizers::Tokenizer& tokenizer, bool is_rank_0) {
  if (!is_rank_0) {
    scorer.follow();
    return {};
  }
  const std::string text = read_text(file);
  const std::string_view trimmed = tokenizers::stripped(text);
  const auto words = static_cast<double>(std::count(trimmed.begin(), trimmed.end(), ' ') + 1);
  const std::vector<Tokens> document{tokenizer.encode(detokenize_wikitext(text))};
  const auto tokens = static_cast<double>(document[0].size());
  PENTATRON_CHECK(words > 1 && tokens > 1, kData,
                  "{}: {} words and {} tokens; a perplexity needs two of each", file, words,
                  tokens);
  const double loss = -sum_of(scorer.score(document).at(0).logprobs) / (tokens - 1);
  (void)scorer.score({});
  const double adjusted = loss * (tokens - 1) / (words - 1);
  return {{"loss", loss},
          {"perplexity", std::exp(std::min(kMaxExponent, loss))},
          {"adjusted_perplexity", std::exp(std::min(kMaxExponent, adjusted))},
          {"tokens", tokens},
          {"words", words}};
}

EvaluationNumbers evaluate_lambada(const std::string& file, bool strict, DocumentScorer& scorer,
                                   const tokenizers::Tokenizer& tokenizer, bool is_rank_0) {
  if (!is_rank_0) {
    scorer.follow();
    return {};
  }
  std::vector<std::size_t> num_targets;
  std::int64_t correct = 0;
  Groups groups(scorer, [&](std::size_t first, const std::vector<SequenceScores>& scores) {
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const std::vector<std::uint8_t>& likeliest = scores[i].likeliest;
      const auto targets = static_cast<std::ptrdiff_t>(num_targets[first + i]);
      correct += std::all_of(likeliest.end() - targets, likeliest.end(),
                             [](std::uint8_t is) { return is != 0; })
                     ? 1
                     : 0;
    }
  });
  for_each_text(file, [&](const std::string& text) -> std::optional<std::string> {
    std::optional<ClozeExample> example = cloze_of(text, strict, tokenizer);
    if (!example) return strict ? "no word with a text before it" : "fewer than two tokens";
    num_targets.push_back(example->num_targets);
    return groups.add(std::move(example->tokens));
  });
  groups.finish();
  const auto examples = static_cast<double>(groups.size());
  PENTATRON_CHECK(examples > 0, kData, "{}: no example", file);
  return {{"accuracy", static_cast<double>(correct) / examples},
          {"correct", static_cast<double>(correct)},
          {"examples", examples}};
}

EvaluationNumbers evaluate_bits_per_byte(const std::string& file, DocumentScorer& scorer,
                                         const tokenizers::Tokenizer& tokenizer, bool is_rank_0) {
  if (!is_rank_0) {
    scorer.follow();
    return {};
  }
  double sum = 0;
  double tokens = 0;
  double bytes = 0;
  Groups groups(scorer, [&](std::size_t, const std::vector<SequenceScores>& scores) {
    for (const SequenceScores& document : scores) {
      sum += sum_of(document.logprobs);
      tokens += static_cast<double>(document.logprobs.size());
    }
  });
  const auto take = [&](const std::string& text) {
    Tokens document = encode_plain(tokenizer, text);
    document.insert(document.begin(), tokenizer.bos().value_or(tokenizer.eod()));
    bytes += static_cast<double>(text.size());
    return groups.add(std::move(document));
  };
  if (holds_json_lines(file)) {
    for_each_text(file, take);
  } else if (const auto wrong = take(read_text(file))) {
    PENTATRON_THROW(kData, "{}: {}", file, *wrong);
  }
  groups.finish();
  PENTATRON_CHECK(bytes > 0, kData, "{}: no text", file);
  return {{"bits_per_byte", -sum / (bytes * std::numbers::ln2)},
          {"loss", -sum / tokens},
          {"tokens", tokens},
          {"bytes", bytes},
          {"documents", static_cast<double>(groups.size())}};
}

}  // namespace pentatron::inference
