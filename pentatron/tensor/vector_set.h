// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pentatron::tensor {

// The vector instructions that own CPU kernels are compiled for; kAvx2: with fused multiply-add.
enum class VectorSet { kNone, kAvx2, kAvx512 };

// The widest that this processor and this build have.
[[nodiscard]] VectorSet vector_set();

}  // namespace pentatron::tensor
