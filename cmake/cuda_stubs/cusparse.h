// SPDX-License-Identifier: Apache-2.0
// What the tensor library's CUDA headers name of cuSPARSE; used where the toolkit comes without it.
#pragma once
typedef struct cusparseContext* cusparseHandle_t;
