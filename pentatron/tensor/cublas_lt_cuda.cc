// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/cublas_lt.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <cublasLt.h>

#include <memory>
#include <type_traits>

#include "pentatron/base/error.h"
#include "pentatron/tensor/fp8_blockwise.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/product_algorithms.h"

namespace pentatron::tensor {
namespace {

void check(cublasStatus_t status, std::string_view what) {
  PENTATRON_CHECK(status == CUBLAS_STATUS_SUCCESS, kCuda, "cuBLASLt: {}: {}", what,
                  cublasLtGetStatusString(status));
}

template <typename T, auto kDestroy>
struct Destroy {
  void operator()(T* p) const { static_cast<void>(kDestroy(p)); }
};
template <typename Handle, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>,
                              Destroy<std::remove_pointer_t<Handle>, kDestroy>>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Matmul = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;

// Of a row-major matrix, which the library reads as its transpose.
Layout layout_of(cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(columns),
                                   static_cast<std::uint64_t>(rows), columns),
        "layout");
  return Layout(layout);
}

template <typename T>
void set(const Matmul& matmul, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(matmul.get(), attribute, &value, sizeof(value)),
        "attribute");
}

cudaDataType_t type_of(const Tensor& t) {
  switch (t.scalar_type()) {
    case DType::Float8_e4m3fn:
      return CUDA_R_8F_E4M3;
    case DType::Float8_e5m2:
      return CUDA_R_8F_E5M2;
    case DType::BFloat16:
      return CUDA_R_16BF;
    case DType::Float:
      return CUDA_R_32F;
    default:
      PENTATRON_THROW(kInternal, "an fp8 product of or into {}", describe(t));
  }
}

// With scales of blocks the library adds up in fp32 every 128 elements, whatever is asked.
bool fast_sums(const Fp8Product& in) { return in.fast_sums && in.a_mk.block == ScaleBlock{}; }

cublasLtMatmulMatrixScale_t scale_mode(const Fp8Tensor& x) {
  if (x.block == kActivationBlock) return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  if (x.block == kWeightBlock) return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

struct Problem {
  Matmul matmul;
  Layout a, b, out;
};

// Row-major out = a b^T is column-major out^T = b a^T.
Problem describe_problem(const Fp8Product& in) {
  cublasLtMatmulDesc_t matmul = nullptr;
  check(cublasLtMatmulDescCreate(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
  Problem p{.matmul = Matmul(matmul),
            .a = layout_of(type_of(in.b_nk.data), in.b_nk.data.size(0), in.b_nk.data.size(1)),
            .b = layout_of(type_of(in.a_mk.data), in.a_mk.data.size(0), in.a_mk.data.size(1)),
            .out = layout_of(type_of(in.out_mn), in.out_mn.size(0), in.out_mn.size(1))};
  set(p.matmul, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(p.matmul, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  set(p.matmul, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(fast_sums(in) ? 1 : 0));
  set(p.matmul, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(in.b_nk));
  set(p.matmul, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(in.a_mk));
  set(p.matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, in.b_nk.scale.const_data_ptr());
  set(p.matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, in.a_mk.scale.const_data_ptr());
  if (in.bias_n.defined()) {
    set(p.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(p.matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(in.bias_n));
    set(p.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, in.bias_n.const_data_ptr());
  }
  return p;
}

// One per process: all ranks of it ask the same library.
ProductAlgorithms& algorithms() {
  static ProductAlgorithms all;
  return all;
}

// Block scales as the library reads them: see ops/products_cuda.cc, block_scales().
bool has_library_order(const Fp8Tensor& x) {
  constexpr std::int64_t kStep = 4;
  const Tensor& scale = x.scale;
  const std::int64_t rows = x.data.size(0);
  const std::int64_t along = (x.data.size(1) + kFp8Block - 1) / kFp8Block;
  if (scale.dim() != 2 || scale.size(1) != along) return false;
  if (x.block == kActivationBlock) {
    return rows % kStep == 0 && scale.size(0) == rows && scale.stride(0) == 1 &&
           (along == 1 || scale.stride(1) == rows);
  }
  return scale.size(0) == (rows + kFp8Block - 1) / kFp8Block && scale.stride(1) == 1 &&
         scale.stride(0) == (along + kStep - 1) / kStep * kStep;
}

bool scales_fit(const Fp8Product& in) {
  if (in.a_mk.block == ScaleBlock{} && in.b_nk.block == ScaleBlock{}) return true;
  return blockwise(in.a_mk, in.b_nk) && has_library_order(in.a_mk) && has_library_order(in.b_nk);
}

void check_product(const Fp8Product& in) {
  const Tensor &a = in.a_mk.data, &b = in.b_nk.data;
  PENTATRON_CHECK(
      a.dim() == 2 && b.dim() == 2 && a.is_contiguous() && b.is_contiguous() &&
          a.size(1) == b.size(1) && a.size(1) % kFp8Step == 0 && in.out_mn.is_contiguous() &&
          in.out_mn.sizes() == IntList({a.size(0), b.size(0)}) &&
          (a.scalar_type() == DType::Float8_e4m3fn || b.scalar_type() == DType::Float8_e4m3fn) &&
          scales_fit(in),
      kInternal, "fp8 product of {} and {} into {}, scales {} of {} x {} and {} of {} x {}",
      describe(a), describe(b), describe(in.out_mn), describe(in.a_mk.scale), in.a_mk.block.rows,
      in.a_mk.block.columns, describe(in.b_nk.scale), in.b_nk.block.rows, in.b_nk.block.columns);
}

}  // namespace

void fp8_product(const Fp8Product& in) {
  check_product(in);
  const std::int64_t m = in.a_mk.data.size(0), n = in.b_nk.data.size(0), k = in.a_mk.data.size(1);
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!in.accumulate) in.out_mn.zero_();
    return;
  }
  const Problem problem = describe_problem(in);
  const LibraryProduct product{.handle = at::cuda::getCurrentCUDABlasLtHandle(),
                               .description = problem.matmul.get(),
                               .a_layout = problem.a.get(),
                               .b_layout = problem.b.get(),
                               .out_layout = problem.out.get(),
                               .a = in.b_nk.data.const_data_ptr(),
                               .b = in.a_mk.data.const_data_ptr(),
                               .out = in.out_mn.mutable_data_ptr(),
                               .accumulate = in.accumulate,
                               .device = in.out_mn.device(),
                               .stream = stream_of(in.out_mn)};
  const ProductKey key{m,
                       n,
                       k,
                       type_of(in.a_mk.data),
                       type_of(in.b_nk.data),
                       type_of(in.out_mn),
                       scale_mode(in.a_mk),
                       scale_mode(in.b_nk),
                       in.bias_n.defined(),
                       fast_sums(in)};
  check(start_product(product, algorithms().of(product, key)), "fp8 product");
}

}  // namespace pentatron::tensor
