// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pentatron::parallel_layers {

// What low-rank adapters are like, the same for all leaves of a model: y = W x + scale * B A
// dropout(x) for each adapted part (E. Hu et al., "LoRA", arXiv 2106.09685), with A [rank, inputs]
// and B [outputs, rank].
struct AdapterForm {
  std::int64_t rank = 0;  // 0: no adapters
  double scale = 0;
  double dropout = 0;
  // The weight's rows are brought to a length of their own, m (W + scale B A) / |W + scale B A|, of
  // which gradients see the length as a constant (S. Liu et al., "DoRA", arXiv 2402.09353, 4.3).
  bool dora = false;
  std::vector<std::string> modules = {};  // LeafPart::module of the adapted parts

  [[nodiscard]] bool adapts(const std::string& module) const {
    if (rank == 0 || module.empty()) return false;
    for (const std::string& name : modules) {
      if (name == module) return true;
    }
    return false;
  }
};

}  // namespace pentatron::parallel_layers
