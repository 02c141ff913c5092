// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/op_table.h"

// The CPU's side of the op table: the readable reference. What each function does stands in
// op_functions.inc.
namespace pentatron::ops::cpu {

#define PENTATRON_OP(result, name, arguments) result name arguments;
#include "pentatron/ops/op_functions.inc"

}  // namespace pentatron::ops::cpu
