// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pentatron::comm {

// In the CUDA library: registers the nccl backend.
void register_cuda_comm();

}  // namespace pentatron::comm
