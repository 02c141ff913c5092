// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <span>

#include "pentatron/base/error.h"
#include "pentatron/base/printable.h"
#include "pentatron/datasets/indexed_dataset.h"

namespace pentatron::datasets {
namespace {

void include(LengthRange& range, std::int64_t length, bool first) {
  range.min = first ? length : std::min(range.min, length);
  range.max = std::max(range.max, length);
}

double ratio(std::int64_t a, std::int64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

void add_sequences(const IndexedDataset& dataset, std::int64_t num_first_tokens,
                   DatasetSummary& summary) {
  for (std::int64_t i = 0; i < dataset.num_sequences(); ++i) {
    const std::int32_t length = dataset.sequence_length(i);
    include(summary.sequence_lengths, length, i == 0);
    if (dataset.has_modes()) ++summary.modes[dataset.mode(i)];
    const auto have = static_cast<std::int64_t>(summary.first_tokens.size());
    const std::int64_t take = std::min<std::int64_t>(length, num_first_tokens - have);
    if (take <= 0) continue;
    summary.first_tokens.resize(static_cast<std::size_t>(have + take));
    dataset.read(i, 0, std::span(summary.first_tokens).subspan(static_cast<std::size_t>(have)));
  }
  summary.sequence_lengths.mean = ratio(dataset.num_tokens(), dataset.num_sequences());
}

void add_documents(const IndexedDataset& dataset, DatasetSummary& summary) {
  for (std::int64_t i = 0; i < dataset.num_documents(); ++i) {
    const auto [begin, end] = dataset.document_range(i);
    if (begin == end) ++summary.empty_documents;
    std::int64_t length = 0;
    for (std::int64_t s = begin; s < end; ++s) length += dataset.sequence_length(s);
    include(summary.document_lengths, length, i == 0);
    ++summary.histogram.at(std::bit_width(static_cast<std::uint64_t>(length)));
  }
  summary.document_lengths.mean = ratio(dataset.num_tokens(), dataset.num_documents());
}

std::string range_text(const LengthRange& range) {
  return fmt::format("min {}, mean {:.2f}, max {}", range.min, range.mean, range.max);
}

// A line for each power of two from the shortest document to the longest.
std::string histogram_text(const DatasetSummary& summary) {
  constexpr double kBarColumns = 40;
  const auto& counts = summary.histogram;
  const std::int64_t most = *std::ranges::max_element(counts);
  if (most == 0) return "";
  std::string text = "documents by tokens:\n";
  const auto width = [](std::int64_t length) {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length)));
  };
  for (std::size_t k = width(summary.document_lengths.min);
       k <= width(summary.document_lengths.max); ++k) {
    const std::uint64_t low = k == 0 ? 0 : std::uint64_t{1} << (k - 1);
    const std::uint64_t high = k == 0 ? 0 : low + (low - 1);
    const auto bar = static_cast<std::size_t>(kBarColumns * ratio(counts[k], most) + 0.5);
    const std::string label = low == high ? std::to_string(low) : fmt::format("{}-{}", low, high);
    const std::string line =
        fmt::format("  {:>15}  {:>10}  {:5.1f} %  {}", label, counts[k],
                    100 * ratio(counts[k], summary.num_documents), std::string(bar, '#'));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace

DatasetSummary summarize_dataset(const std::string& prefix, std::int64_t num_first_tokens) {
  const IndexedDataset dataset(prefix);
  DatasetSummary summary;
  summary.prefix = prefix;
  summary.dtype = dataset.dtype();
  summary.num_sequences = dataset.num_sequences();
  summary.num_documents = dataset.num_documents();
  summary.num_tokens = dataset.num_tokens();
  add_sequences(dataset, num_first_tokens, summary);
  add_documents(dataset, summary);
  return summary;
}

std::string format_summary(const DatasetSummary& summary) {
  std::string modes;
  for (const auto& [mode, count] : summary.modes) {
    modes += fmt::format("{}{} of mode {}", modes.empty() ? "" : ", ", count, mode);
  }
  return fmt::format(
      "prefix: {}\ndtype: {}\nsequences: {}{}\ndocuments: {} ({} empty)\ntokens: {}\n"
      "tokens in a sequence: {}\ntokens in a document: {}\n{}first tokens: {}\n",
      summary.prefix, to_string(summary.dtype), summary.num_sequences,
      modes.empty() ? "" : " (" + modes + ")", summary.num_documents, summary.empty_documents,
      summary.num_tokens, range_text(summary.sequence_lengths),
      range_text(summary.document_lengths), histogram_text(summary),
      fmt::join(summary.first_tokens, " "));
}

std::string format_document(const std::string& prefix, const DocumentOptions& options) {
  const IndexedDataset dataset(prefix);
  PENTATRON_CHECK(options.document >= 0 && options.document < dataset.num_documents(), kConfig,
                  "{} has documents 0 to {}, there is no document {}", prefix,
                  dataset.num_documents() - 1, options.document);
  const auto [begin, end] = dataset.document_range(options.document);
  std::int64_t length = 0;
  for (std::int64_t s = begin; s < end; ++s) length += dataset.sequence_length(s);
  const std::int64_t limit =
      options.max_tokens > 0 ? options.max_tokens : std::numeric_limits<std::int64_t>::max();
  std::string text = fmt::format("document {}: {} tokens in {} sequences\n", options.document,
                                 length, end - begin);
  std::vector<std::int32_t> ids;
  for (std::int64_t s = begin; s < end; ++s) {
    const std::int64_t left = limit - static_cast<std::int64_t>(ids.size());
    const std::int64_t take = std::min<std::int64_t>(dataset.sequence_length(s), left);
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(take));
    dataset.read(s, 0, tokens);
    text += fmt::format("sequence {}: {}\n", s, fmt::join(tokens, " "));
    for (const std::int64_t token : tokens) {
      PENTATRON_CHECK(
          options.tokenizer == nullptr || (token >= 0 && token < options.tokenizer->vocab_size()),
          kData,
          "{}: sequence {} holds token {}, but the tokenizer knows {}: the corpus was "
          "made with another one",
          prefix, s, token, options.tokenizer->vocab_size());
      ids.push_back(static_cast<std::int32_t>(token));
    }
    if (take < dataset.sequence_length(s)) break;
  }
  const auto shown = static_cast<std::int64_t>(ids.size());
  if (shown < length) text += fmt::format("({} tokens more)\n", length - shown);
  if (options.tokenizer == nullptr) return text;
  // Line ends stay, everything else that could steer a terminal does not.
  text += "text:\n";
  const std::string decoded = options.tokenizer->decode_utf8(ids);
  for (std::size_t at = 0; at <= decoded.size();) {
    const std::size_t line_end = std::min(decoded.find('\n', at), decoded.size());
    text += printable(std::string_view(decoded).substr(at, line_end - at), decoded.size()) + "\n";
    at = line_end + 1;
  }
  return text;
}

}  // namespace pentatron::datasets
