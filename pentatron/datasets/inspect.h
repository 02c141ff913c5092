// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pentatron/datasets/token_dtype.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {

// Least, mean and largest of some numbers of tokens; zeros of none.
struct LengthRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
  double mean = 0;
};

struct DatasetSummary {
  std::string prefix;
  TokenDtype dtype = TokenDtype::kUint16;
  std::int64_t num_sequences = 0;
  std::int64_t num_documents = 0;
  std::int64_t num_tokens = 0;
  std::int64_t empty_documents = 0;  // without a sequence
  LengthRange sequence_lengths;
  LengthRange document_lengths;
  // Documents of 0, 1, 2 to 3, 4 to 7, ... tokens.
  std::array<std::int64_t, 65> histogram{};
  std::map<int, std::int64_t> modes;       // sequences of each mode; empty where there are none
  std::vector<std::int64_t> first_tokens;  // of the corpus, over sequences
};

// Opens and checks a corpus (as IndexedDataset does) and sums it up.
[[nodiscard]] DatasetSummary summarize_dataset(const std::string& prefix,
                                               std::int64_t num_first_tokens = 16);

// One `name: value` a line and the histogram, for `pentatron inspect_dataset`.
[[nodiscard]] std::string format_summary(const DatasetSummary& summary);

struct DocumentOptions {
  std::int64_t document = 0;
  std::int64_t max_tokens = 0;                       // shown of it; 0: all
  const tokenizers::Tokenizer* tokenizer = nullptr;  // shows the text, too
};

// One document of a corpus: where it stands, its tokens sequence by sequence, and its text, in
// which nothing can steer a terminal. Errors: those of IndexedDataset; kConfig for a document that
// is not there; kData for a token that the tokenizer does not know.
[[nodiscard]] std::string format_document(const std::string& prefix,
                                          const DocumentOptions& options);

}  // namespace pentatron::datasets
