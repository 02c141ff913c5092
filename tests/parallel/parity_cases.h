// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/parallel/parity_case.h"

namespace pentatron::parity {

// What a test of its own name compares: a layout with one process, two kinds of models that must
// differ, or a layout with another, bit for bit.
struct ParityCase {
  enum class Claim { kEqual, kDiffers, kSameBits };
  std::string name = {};
  Claim claim = Claim::kEqual;
  CaseOptions options = {};
  Layout layout = {};
  CaseOptions other = {};  // kDiffers: the other kind
  Layout kept = {};        // kSameBits: the other layout
};

// The layouts of the proof and what a change of one axis or form needs beside them, in groups.
[[nodiscard]] std::vector<ParityCase> parity_cases();

}  // namespace pentatron::parity
