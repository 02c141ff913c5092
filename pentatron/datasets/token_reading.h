// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "pentatron/datasets/corpus.h"

namespace pentatron::datasets {

// Reads tokens of a sequence for a sample. kData for one outside the vocabulary; an error of the
// corpus comes with the sequence that was being read.
void read_tokens(const Corpus& corpus, std::int64_t sequence, std::int64_t offset,
                 std::span<std::int64_t> out, std::int64_t vocab_size);

}  // namespace pentatron::datasets
