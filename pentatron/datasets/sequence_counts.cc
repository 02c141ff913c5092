// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sequence_counts.h"

#include <fmt/format.h>

#include <set>

#include "pentatron/base/format.h"
#include "pentatron/datasets/indexed_dataset.h"

namespace pentatron::datasets {

std::vector<SequenceCount> count_sequences(const std::vector<std::string>& prefixes) {
  std::vector<SequenceCount> counts;
  std::set<std::string> seen;
  for (const std::string& prefix : prefixes) {
    if (!seen.insert(prefix).second) continue;
    const IndexedDataset dataset(prefix);
    counts.push_back({.prefix = prefix,
                      .sequences = dataset.num_sequences(),
                      .document_entries = dataset.num_documents() + 1});
  }
  return counts;
}

std::string sequence_counts_json(const std::vector<SequenceCount>& counts) {
  std::string text = "{";
  for (const SequenceCount& count : counts) {
    text += fmt::format("{}{}: [{}, {}]", text.size() > 1 ? ", " : "",
                        python_json_text(count.prefix), count.sequences, count.document_entries);
  }
  return text + "}";
}

}  // namespace pentatron::datasets
