// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/datasets/token_dtype.h"

namespace pentatron::datasets {

struct DatasetSummary {
  std::string prefix;
  TokenDtype dtype = TokenDtype::kUint16;
  std::int64_t num_sequences = 0;
  std::int64_t num_documents = 0;
  std::int64_t num_tokens = 0;
  std::int64_t empty_documents = 0;  // without a sequence
  std::int32_t min_length = 0;       // tokens of the shortest sequence; 0 without sequences
  std::int32_t max_length = 0;
  double mean_length = 0;
  std::vector<std::int64_t> first_tokens;  // of the corpus, over sequences
};

// Opens and checks a corpus (as IndexedDataset does) and sums it up.
[[nodiscard]] DatasetSummary summarize_dataset(const std::string& prefix,
                                               std::int64_t num_first_tokens = 16);

// One `name: value` a line, for `pentatron inspect_dataset`.
[[nodiscard]] std::string format_summary(const DatasetSummary& summary);

}  // namespace pentatron::datasets
