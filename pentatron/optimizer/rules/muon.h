// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/optimizer/rules/update_rule.h"

namespace pentatron::optimizer {

// Muon (Jordan et al. 2024) in Megatron's form, for matrices that lie whole on this data-parallel
// rank:
//   g = grad * scale; m = b m + (1-b) g; d = nesterov ? (1-b) g + b m : m;
//   p = p (1 - lr wd) - lr s O(d),
// O: Newton-Schulz iteration towards the orthogonal factor; s: --muon-scale-mode of the logical
// rows x columns, times --muon-extra-scale-factor. A matrix is a weight with all its parts, but
// query, key and value are three (one with --muon-no-split-qkv). Where the tensor-parallel axis
// cuts it, its parts are gathered and every rank computes the whole ("duplicated"), so any layout
// gives the same update. State: momentum. Parts that are not all there: kInternal.
[[nodiscard]] std::unique_ptr<UpdateRule> make_muon(const config::OptimizerConfig& config,
                                                    comm::ParallelContext& context);
// Its UpdateRule::states().
[[nodiscard]] inline std::vector<std::string_view> muon_states() { return {"momentum"}; }

// One iteration's polynomial: a x + b (x x') x + c (x x')^2 x.
struct NewtonSchulzStep {
  double a, b, c;
};
// `steps` of a --muon-coefficient-type ("simple", "quintic"), begun again when they end. Another
// type: kConfig.
[[nodiscard]] std::vector<NewtonSchulzStep> newton_schulz_steps(const std::string& type,
                                                                std::int64_t steps);
// Brings the singular values of x (any float matrix, divided by its Frobenius norm first) near 1.
[[nodiscard]] Tensor orthogonalise(const Tensor& x, const std::vector<NewtonSchulzStep>& steps);

}  // namespace pentatron::optimizer
