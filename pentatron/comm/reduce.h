// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "pentatron/comm/group.h"

namespace pentatron::comm {

// Every outs[k][i] = reduction of ins[0][i], ins[1][i], ... in this order, i < count. Done in the
// dtype itself; bf16 and fp16 are accumulated in fp32 and rounded once. An output may be one of the
// inputs (same position). NaN wins in max and min. Another dtype (bool, complex, fp8): kUnsupported
// error.
void reduce_in_order(DType dtype, ReduceOp op, std::span<const void* const> ins,
                     std::span<void* const> outs, std::int64_t count);

}  // namespace pentatron::comm
