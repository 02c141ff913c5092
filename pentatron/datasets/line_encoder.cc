// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/line_encoder.h"

#include <limits>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/datasets/sentence_splitter.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {

EncodedBatch LineEncoder::encode(const ParsedBatch& batch, EncodedBatch spare) {
  constexpr std::size_t kBytesPerToken = 4;  // about; of English
  const std::size_t num_keys = options_.json_keys.size();
  EncodedBatch encoded;
  encoded.keys = std::move(spare.keys);
  encoded.keys.resize(num_keys);
  for (EncodedKey& key : encoded.keys) {
    key.tokens.clear();
    key.lengths.clear();
    key.sequences.clear();
    key.tokens.reserve(batch.bytes.size() / kBytesPerToken / num_keys);
  }
  encoded.lines = batch.lines;
  encoded.blank_lines = batch.blank_lines;
  encoded.bytes = batch.bytes_read;
  encoded.file = batch.file;
  encoded.end = batch.end;
  encoded.file_bytes = batch.file_bytes;
  std::vector<std::span<const ParsedBatch::Piece>> texts(num_keys);
  std::span<const ParsedBatch::Piece> pieces(batch.pieces);
  std::span<const std::size_t> counts(batch.num_pieces);
  for (const ParsedBatch::Document& document : batch.documents) {
    if (document.problem) {
      encoded.problems.push_back(*document.problem);
      continue;
    }
    for (std::size_t k = 0; k < num_keys; ++k) {
      texts[k] = pieces.first(counts[k]);
      pieces = pieces.subspan(counts[k]);
    }
    counts = counts.subspan(num_keys);
    if (auto problem = encode_texts(batch, texts, encoded)) {
      encoded.problems.push_back({document.line, std::move(*problem)});
      // The run ends there.
      if (options_.on_bad_line == OnBadLine::kStop) break;
    } else {
      ++encoded.documents;
    }
  }
  return encoded;
}

// Of all keys or, with a problem, of none.
std::optional<JsonlProblem> LineEncoder::encode_texts(const ParsedBatch& batch, Texts texts,
                                                      EncodedBatch& encoded) {
  std::vector<std::pair<std::size_t, std::size_t>> before;
  for (const EncodedKey& key : encoded.keys) {
    before.emplace_back(key.tokens.size(), key.lengths.size());
  }
  std::vector<std::int32_t> sequences(texts.size(), 0);
  try {
    for (std::size_t k = 0; k < texts.size(); ++k) {
      EncodedKey& key = encoded.keys[k];
      for (const ParsedBatch::Piece& piece : texts[k]) {
        encode_text(batch.text(piece), key, sequences[k]);
      }
      if (options_.append_eod && sequences[k] > 0) {
        key.tokens.push_back(tokenizer_.eod());
        ++key.lengths.back();
      }
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kData) throw;
    for (std::size_t k = 0; k < texts.size(); ++k) {
      encoded.keys[k].tokens.resize(before[k].first);
      encoded.keys[k].lengths.resize(before[k].second);
    }
    return JsonlProblem{1, error.what()};
  }
  for (std::size_t k = 0; k < texts.size(); ++k) encoded.keys[k].sequences.push_back(sequences[k]);
  return std::nullopt;
}

void LineEncoder::encode_text(std::string_view text, EncodedKey& key, std::int32_t& sequences) {
  if (!options_.split_sentences) return encode_piece(text, key, sequences);
  for (const std::string_view sentence : split_sentences(text, options_.keep_newlines)) {
    encode_piece(sentence, key, sequences);
  }
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
