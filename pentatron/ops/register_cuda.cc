// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/register_cuda.h"

#include "pentatron/ops/cuda_ops.h"

namespace pentatron::ops {
namespace {

constexpr OpTable kCudaTable = {
#define PENTATRON_OP(result, name, arguments) .name = cuda::name,
#include "pentatron/ops/op_functions.inc"
};

}  // namespace

void register_cuda_ops() { register_cuda_op_table(kCudaTable); }

}  // namespace pentatron::ops
