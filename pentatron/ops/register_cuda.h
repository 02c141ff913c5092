// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pentatron::ops {

// Fills the CUDA op table. Part of the CUDA library; called once when it is loaded, before rank
// threads start.
void register_cuda_ops();

}  // namespace pentatron::ops
