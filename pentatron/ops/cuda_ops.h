// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/op_table.h"

// The side of GPUs of the op table (in the CUDA library). What each function does stands in
// op_functions.inc.
namespace pentatron::ops::cuda {

#define PENTATRON_OP(result, name, arguments) result name arguments;
#include "pentatron/ops/op_functions.inc"

}  // namespace pentatron::ops::cuda
