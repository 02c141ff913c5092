// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/nn/parameter.h"

namespace pentatron::training {

// A run that trains adapters (--lora-rank) trains nothing else: freezes what is none of them.
void freeze_all_but_adapters(const std::vector<nn::Parameter*>& parameters);

// The rows' lengths |W| of the weights to which DoRA's magnitudes belong, in fp64: by the magnitude
// parameter, of this rank's shape. What adapters start from, as B is zero then. Reads the frozen
// weights; collective over the tensor-parallel ranks.
[[nodiscard]] std::map<const nn::Parameter*, Tensor> row_lengths(
    const std::vector<nn::Parameter*>& parameters, comm::ParallelContext& context);

}  // namespace pentatron::training
