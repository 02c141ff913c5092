// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/datasets/sample.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {

// A sample as text, for `pentatron inspect_dataset --samples`: its sequences with their attention
// segments, and its fields, one a line; fields of tokens also as text, in which nothing can steer a
// terminal. Ids past the tokenizer's (--vocab-extra-ids) are shown as numbers.
[[nodiscard]] std::string format_sample(const Sample& sample,
                                        const tokenizers::Tokenizer& tokenizer);

}  // namespace pentatron::datasets
