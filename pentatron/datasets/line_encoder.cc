// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/line_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/datasets/sentence_splitter.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {
namespace {

// Where invalid UTF-8 stands in plain text; a whole file has lines of its own.
EncodedBatch::Problem utf8_problem(std::string_view text, std::size_t offset, std::int64_t line) {
  const std::string_view before = text.substr(0, offset);
  const auto feeds = std::count(before.begin(), before.end(), '\n');
  const std::size_t feed = before.rfind('\n');
  const std::size_t begin = feed == std::string_view::npos ? 0 : feed + 1;
  return {line + feeds, {static_cast<std::int64_t>(offset - begin) + 1, "not valid UTF-8"}};
}

}  // namespace

EncodedBatch LineEncoder::encode(const CorpusBatch& batch, InputFormat format) {
  EncodedBatch encoded;
  encoded.keys.resize(options_.json_keys.size());
  encoded.lines = static_cast<std::int64_t>(batch.lines.lines.size());
  encoded.bytes = batch.lines.bytes_read;
  encoded.file = batch.file;
  encoded.end = batch.end;
  encoded.file_bytes = batch.file_bytes;
  for (const LineBatch::Line& line : batch.lines.lines) {
    encode_line(batch.lines.text(line), line, format, encoded);
    // The run ends there.
    if (!encoded.problems.empty() && options_.on_bad_line == OnBadLine::kStop) break;
  }
  parser_.release_large_buffers();
  return encoded;
}

void LineEncoder::encode_line(std::string_view text, const LineBatch::Line& line,
                              InputFormat format, EncodedBatch& batch) {
  const auto bad = [&](JsonlProblem problem) {
    batch.problems.push_back({line.number, std::move(problem)});
  };
  if (line.too_long) {
    return bad({1, fmt::format("longer than {} bytes (--max-line-mb allows longer ones)",
                               options_.max_line_bytes)});
  }
  if (is_blank(text)) {
    ++batch.blank_lines;
    return;
  }
  const Texts* texts = &plain_;
  if (format == InputFormat::kJsonLines) {
    if (auto problem = parser_.parse(text)) return bad(std::move(*problem));
    texts = &parser_.texts();
  } else {
    if (format == InputFormat::kTextLines && text.ends_with('\r')) text.remove_suffix(1);
    if (const auto offset = invalid_utf8_offset(text)) {
      batch.problems.push_back(utf8_problem(text, *offset, line.number));
      return;
    }
    plain_[0] = {text};
  }
  if (auto problem = encode_texts(*texts, batch)) return bad(std::move(*problem));
  ++batch.documents;
}

// Of all keys or, with a problem, of none.
std::optional<JsonlProblem> LineEncoder::encode_texts(const Texts& texts, EncodedBatch& batch) {
  std::vector<std::pair<std::size_t, std::size_t>> before;
  for (const EncodedKey& key : batch.keys)
    before.emplace_back(key.tokens.size(), key.lengths.size());
  std::vector<std::int32_t> sequences(texts.size(), 0);
  try {
    for (std::size_t k = 0; k < texts.size(); ++k) {
      EncodedKey& key = batch.keys[k];
      for (const std::string_view text : texts[k]) {
        if (!options_.split_sentences) {
          encode_piece(text, key, sequences[k]);
          continue;
        }
        for (const std::string_view sentence : split_sentences(text, options_.keep_newlines)) {
          encode_piece(sentence, key, sequences[k]);
        }
      }
      if (options_.append_eod && sequences[k] > 0) {
        key.tokens.push_back(tokenizer_.eod());
        ++key.lengths.back();
      }
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kData) throw;
    for (std::size_t k = 0; k < texts.size(); ++k) {
      batch.keys[k].tokens.resize(before[k].first);
      batch.keys[k].lengths.resize(before[k].second);
    }
    return JsonlProblem{1, error.what()};
  }
  for (std::size_t k = 0; k < texts.size(); ++k) batch.keys[k].sequences.push_back(sequences[k]);
  return std::nullopt;
}

void LineEncoder::encode_piece(std::string_view text, EncodedKey& key, std::int32_t& sequences) {
  constexpr std::size_t kLimit = std::numeric_limits<std::int32_t>::max() - 1;  // EOD may follow
  const std::size_t before = key.tokens.size();
  tokenizer_.encode_append(text, key.tokens);
  const std::size_t count = key.tokens.size() - before;
  PENTATRON_CHECK(count <= kLimit, kData, "{} tokens in a sequence; the format holds at most {}",
                  count, kLimit);
  if (count == 0) return;
  key.lengths.push_back(static_cast<std::int32_t>(count));
  ++sequences;
}

}  // namespace pentatron::datasets
