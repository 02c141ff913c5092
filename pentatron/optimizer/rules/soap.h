// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/optimizer/rules/update_rule.h"

namespace pentatron::optimizer {

// SOAP (N. Vyas et al., "SOAP: improving and stabilizing Shampoo using Adam", 2024, algorithm 3):
// Adam in the eigenbasis of Shampoo's statistics, for matrices G [m, n] that lie whole on this
// data-parallel rank. In step t, with g = grad * scale, b = --soap-shampoo-beta:
//   t = 1: L = (1-b) g g', R = (1-b) g' g, QL and QR their bases by soap_first_basis();
//   M = b1 M + (1-b1) g; V = b2 V + (1-b2) (QL' g QR)^2, element by element;
//   N = QL [(QL' M QR / (1-b1^t)) / (sqrt(V / (1-b2^t)) + eps)] QR'; p = p - lr (N + wd p);
//   t > 1: L = b L + (1-b) g g', R = b R + (1-b) g' g, and where t is a multiple of
//   --soap-precondition-frequency: QL and QR by soap_next_basis().
// b1, b2, eps: Adam's options. A side longer than kMaxPreconditionedSide (state_plan.h) has the
// identity for its basis and no statistic. Each part of a weight (query, key, value, gate, up) is a
// matrix of its own. Where the tensor-parallel axis cuts it, gradient and momentum are gathered and
// every rank computes the whole, so any layout gives the same update. State: exp_avg, as the part;
// whole on every rank that holds some of the part: exp_avg_sq (in the eigenbasis), soap_left [m, m]
// and soap_right [n, n], soap_left_basis, soap_right_basis. The host reads step and skip flag once
// a step, so a step cannot be recorded.
[[nodiscard]] std::unique_ptr<UpdateRule> make_soap(const config::OptimizerConfig& config,
                                                    comm::ParallelContext& context);
// Eigenvectors, as columns by descending eigenvalue, of S + eps^(1/4) mean(diag S) diag(1, (n-1)/n,
// ..., 1/n), with the eps of S's dtype (fp32 or fp64): those of S where eigenvalues stand well
// apart, and in a null space those of the ramp, which rounding does not choose. (The paper takes
// S's own.) The host may wait for a GPU.
[[nodiscard]] Tensor soap_first_basis(const Tensor& statistic_nn);
// The orthogonal factor of S Q + eps^(1/2) mean(diag S) Q: a step of power iteration by QR, which
// leaves directions alone that S says nothing of. (The paper's has no second term.)
[[nodiscard]] Tensor soap_next_basis(const Tensor& statistic_nn, const Tensor& basis_nn);
// Its UpdateRule::states().
[[nodiscard]] inline std::vector<std::string_view> soap_states() { return {"exp_avg"}; }

}  // namespace pentatron::optimizer
