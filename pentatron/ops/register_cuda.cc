// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/register_cuda.h"

#include "pentatron/ops/cuda_ops.h"

namespace pentatron::ops {
namespace {

constexpr OpTable kCudaTable = {
    .norm_forward = cuda::norm_forward,
    .norm_backward = cuda::norm_backward,
    .gelu_forward = cuda::gelu_forward,
    .gelu_backward = cuda::gelu_backward,
    .swiglu_forward = cuda::swiglu_forward,
    .swiglu_backward = cuda::swiglu_backward,
    .dropout = cuda::dropout,
    .rotate = cuda::rotate,
    .embedding_forward = cuda::embedding_forward,
    .embedding_backward = cuda::embedding_backward,
    .column_sums = cuda::column_sums,
    .row_max = cuda::row_max,
    .softmax_pieces = cuda::softmax_pieces,
    .softmax_gradient_ = cuda::softmax_gradient_,
    .attention_forward = cuda::attention_forward,
    .attention_backward = cuda::attention_backward,
    .adamw_step = cuda::adamw_step,
    .sgd_step = cuda::sgd_step,
    .sum_of_squares = cuda::sum_of_squares,
};

}  // namespace

void register_cuda_ops() { register_cuda_op_table(kCudaTable); }

}  // namespace pentatron::ops
