// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pentatron::datasets {

struct SequenceCount {
  std::string prefix;
  std::int64_t sequences = 0;
  std::int64_t document_entries = 0;  // documents + 1, as the index counts them
};

// Counts of each corpus once, in the order given. Errors: those of IndexedDataset.
[[nodiscard]] std::vector<SequenceCount> count_sequences(const std::vector<std::string>& prefixes);

// {"prefix": [sequences, document entries], ...}, as Megatron's build_sequences_per_dataset.py
// writes it for --per-dataset-sequences-path.
[[nodiscard]] std::string sequence_counts_json(const std::vector<SequenceCount>& counts);

}  // namespace pentatron::datasets
