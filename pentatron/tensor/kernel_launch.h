// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/kernels/types.h"
#include "pentatron/tensor/tensor.h"

// How *_cuda.cc files start kernels: tensors to raw pointers, the current stream, the launch's
// error.
namespace pentatron::tensor {

[[nodiscard]] inline kernels::Type kernel_type(DType dtype) {
  switch (dtype) {
    case DType::Float:
      return kernels::Type::kFloat;
    case DType::BFloat16:
      return kernels::Type::kBFloat16;
    case DType::Half:
      return kernels::Type::kHalf;
    case DType::Double:
      return kernels::Type::kDouble;
    default:
      PENTATRON_THROW(kUnsupported, "CUDA ops compute in fp32, bf16, fp16 and fp64, got {}",
                      dtype_name(dtype));
  }
}

// The calling thread's stream on the tensor's GPU, which must be the thread's current GPU.
[[nodiscard]] inline cudaStream_t stream_of(const Tensor& t) {
  return c10::cuda::getCurrentCUDAStream(t.device().index()).stream();
}

inline void check_launch(cudaError_t status, std::string_view kernel) {
  PENTATRON_CHECK(status == cudaSuccess, kCuda, "kernel {}: {} ({})", kernel,
                  cudaGetErrorString(status), cudaGetErrorName(status));
}

// Raw memory; null for an undefined tensor.
[[nodiscard]] inline const void* read(const Tensor& t) {
  return t.defined() ? t.const_data_ptr() : nullptr;
}
[[nodiscard]] inline void* write(const Tensor& t) {
  return t.defined() ? t.mutable_data_ptr() : nullptr;
}

}  // namespace pentatron::tensor
