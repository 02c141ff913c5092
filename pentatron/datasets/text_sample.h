// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/datasets/sample.h"

namespace pentatron::datasets {

// A sample of one text (Sample::kText): each row's token, its label and the label's weight.
[[nodiscard]] Sample text_sample(SampleSequence sequence, std::vector<std::int64_t> tokens,
                                 std::vector<std::int64_t> labels, std::vector<float> loss_mask);

}  // namespace pentatron::datasets
