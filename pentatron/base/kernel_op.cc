// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/kernel_op.h"

#include <array>

namespace pentatron {
namespace {

struct Part {
  std::string_view in_name;
  std::string_view op;
};

// The first that a name contains. Our own kernels:
constexpr std::array kOwn = {
    Part{"drop_attention_kernel", "attention"},
    Part{"activation_kernel", "activation"},
    Part{"activation_bias_backward_kernel", "activation"},
    Part{"gated_kernel", "activation"},
    Part{"gated_backward_kernel", "activation"},
    Part{"softmax_", "cross entropy"},
    Part{"gather_kernel", "embedding"},
    Part{"scatter_kernel", "embedding"},
    Part{"largest_magnitude_kernel", "fp8 cast"},
    Part{"cast_kernel", "fp8 cast"},
    Part{"adamw_kernel", "optimizer"},
    Part{"sgd_kernel", "optimizer"},
    Part{"stochastic_round_kernel", "optimizer"},
    Part{"dropout_kernel", "dropout"},
    Part{"norm_", "norm"},
    Part{"plain_", "norm"},
    Part{"keep_mask_kernel", "dropout"},
    Part{"square", "gradient norm"},
    Part{"rotate_", "rotary embedding"},
    Part{"column_sum_kernel", "bias gradient"},
    Part{"sum_partials_kernel", "bias gradient"},
    Part{"fill_keyed_kernel", "initial values"},
};

// Those of libraries, and copies as traces name them.
constexpr std::array kLibraries = {
    Part{"nccl", "collective"},
    Part{"flash", "attention"},
    Part{"sdpa", "attention"},
    Part{"fmha", "attention"},
    Part{"gemm", "product"},
    Part{"nvjet", "product"},
    Part{"gemv", "product"},
    Part{"cutlass", "product"},
    Part{"xmma", "product"},
    Part{"cublasLt", "product"},
    Part{"splitKreduce", "product"},
    Part{"copy to device", "copy to device"},
    Part{"copy to host", "copy to host"},
    Part{"copy", "copy"},
    Part{"fill", "fill"},
    Part{"Fill", "fill"},
    Part{"reduce_kernel", "sums"},
    Part{"elementwise", "elementwise"},
};

template <std::size_t kSize>
std::string_view first_in(const std::array<Part, kSize>& parts, std::string_view name) {
  for (const Part& part : parts) {
    if (name.find(part.in_name) != std::string_view::npos) return part.op;
  }
  return "other";
}

}  // namespace

std::string_view op_of_kernel(std::string_view name) {
  const bool own = name.find("pentatron::kernels::") != std::string_view::npos;
  return own ? first_in(kOwn, name) : first_in(kLibraries, name);
}

}  // namespace pentatron
