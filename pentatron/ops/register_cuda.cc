// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/register_cuda.h"

#include "pentatron/ops/cuda_ops.h"
#include "pentatron/ops/narrow_adamw.h"

namespace pentatron::ops {
namespace {

constexpr OpTable kCudaTable = {
#define PENTATRON_OP(result, name, arguments) .name = cuda::name,
#include "pentatron/ops/op_functions.inc"
};

}  // namespace

void register_cuda_ops() {
  register_cuda_op_table(kCudaTable);
  register_cuda_narrow_adamw(cuda::narrow_adamw_step);
}

}  // namespace pentatron::ops
