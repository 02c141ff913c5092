// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "pentatron/datasets/indexed_dataset.h"

namespace pentatron::datasets {

DatasetSummary summarize_dataset(const std::string& prefix, std::int64_t num_first_tokens) {
  const IndexedDataset dataset(prefix);
  DatasetSummary summary;
  summary.prefix = prefix;
  summary.dtype = dataset.dtype();
  summary.num_sequences = dataset.num_sequences();
  summary.num_documents = dataset.num_documents();
  summary.num_tokens = dataset.num_tokens();
  for (std::int64_t i = 0; i < dataset.num_sequences(); ++i) {
    const std::int32_t length = dataset.sequence_length(i);
    summary.min_length = i == 0 ? length : std::min(summary.min_length, length);
    summary.max_length = std::max(summary.max_length, length);
    const auto have = static_cast<std::int64_t>(summary.first_tokens.size());
    const std::int64_t take = std::min<std::int64_t>(length, num_first_tokens - have);
    if (take <= 0) continue;
    summary.first_tokens.resize(static_cast<std::size_t>(have + take));
    dataset.read(i, 0, std::span(summary.first_tokens).subspan(static_cast<std::size_t>(have)));
  }
  for (std::int64_t i = 0; i < dataset.num_documents(); ++i) {
    const auto [begin, end] = dataset.document_range(i);
    if (begin == end) ++summary.empty_documents;
  }
  if (summary.num_sequences > 0) {
    summary.mean_length =
        static_cast<double>(summary.num_tokens) / static_cast<double>(summary.num_sequences);
  }
  return summary;
}

std::string format_summary(const DatasetSummary& summary) {
  return fmt::format(
      "prefix: {}\ndtype: {}\nsequences: {}\ndocuments: {} ({} empty)\ntokens: {}\n"
      "tokens in a sequence: min {}, mean {:.2f}, max {}\nfirst tokens: {}\n",
      summary.prefix, to_string(summary.dtype), summary.num_sequences, summary.num_documents,
      summary.empty_documents, summary.num_tokens, summary.min_length, summary.mean_length,
      summary.max_length, fmt::join(summary.first_tokens, " "));
}

}  // namespace pentatron::datasets
