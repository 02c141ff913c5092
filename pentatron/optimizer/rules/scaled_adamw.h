// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/group.h"
#include "pentatron/config/config.h"
#include "pentatron/optimizer/rules/update_rule.h"
#include "pentatron/optimizer/width_scaling.h"

namespace pentatron::optimizer {

// Who shares the scales: all parts of the layout by name, in one order on all ranks of the group;
// null: this rank holds them whole. `device`: of the moments.
struct ScaleSharing {
  std::vector<std::string> parts = {};
  comm::Group* group = nullptr;
  Device device = kCpu;
};

// AdamW (rules/adamw.h) with moments of fp16 or fp8 (e4m3) beside a scale for each part, so that
// state = moment / scale uses the dtype's range. The scale is the power of two that brings the
// largest magnitude of the whole part into [2^14, 2^15] (fp16) or [2^7, 2^8] (fp8): rounding to
// nearest is all that is lost, and any cut over ranks gives equal bits. (TransformerEngine's
// FusedAdam scales what one rank holds, by a quotient.) A step computes its moments twice, a part
// at a time by the library's operations: once for the largest magnitudes, which one collective
// shares, once to keep them. Checkpoints store the moments in fp32, exactly.
[[nodiscard]] std::unique_ptr<UpdateRule> make_scaled_adamw(const config::OptimizerConfig& config,
                                                            const WidthScaling& scaling,
                                                            std::uint64_t seed,
                                                            ScaleSharing sharing);

// Whether the options ask for such moments.
[[nodiscard]] bool has_scaled_moments(const config::OptimizerConfig& config);

}  // namespace pentatron::optimizer
