// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/sequence_layout.h"

namespace pentatron {

// int64 [rows] on the layout's device: for each row the tokens of its text, which is the largest
// position in its attention segment plus 1. Where the rows are a rank's share of a sequence
// (cut()), the segment is that of the whole. Found from what lies on the device, so that a recorded
// step that is replayed with other documents finds theirs.
[[nodiscard]] Tensor text_lengths(const SequenceLayout& layout);

}  // namespace pentatron
