// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/config/config.h"
#include "pentatron/optimizer/rules/update_rule.h"

namespace pentatron::optimizer {

// Decays of Lion: of the mix whose sign is the update, and of the momentum.
inline constexpr double kLionBeta1 = 0.95;
inline constexpr double kLionBeta2 = 0.98;

// Lion (X. Chen et al., "Symbolic discovery of optimization algorithms", 2023), element by element:
//   g = grad * scale; c = b1 m + (1-b1) g; p = p - lr (sign(c) + wd p); m = b2 m + (1-b2) g.
// State: exp_avg. By the library's operations, a few a piece.
[[nodiscard]] std::unique_ptr<UpdateRule> make_lion();

}  // namespace pentatron::optimizer
