// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pentatron::tensor {

// Fills this module's CUDA table and sets what the library's CUDA products may round: bf16 and fp16
// sums are reduced in fp32, fp32 products do not use TF32. Part of the CUDA library; called once
// when it is loaded, before rank threads start.
void register_cuda_tensor();

}  // namespace pentatron::tensor
