// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/tensor.h"

// The facade: out-of-line wrappers of the library functions that are not methods of Tensor. Add
// here, never include ATen/ops elsewhere. None of these draws random numbers.
namespace pentatron::tensor {

[[nodiscard]] Tensor empty(IntList shape, DType dtype, Device device = kCpu);
[[nodiscard]] Tensor zeros(IntList shape, DType dtype, Device device = kCpu);
[[nodiscard]] Tensor ones(IntList shape, DType dtype, Device device = kCpu);
[[nodiscard]] Tensor full(IntList shape, double value, DType dtype, Device device = kCpu);
// 0 to end - 1.
[[nodiscard]] Tensor arange(std::int64_t end, DType dtype, Device device = kCpu);
[[nodiscard]] Tensor scalar(double value, DType dtype, Device device = kCpu);
// 1-D copies on the CPU, in the dtype of the elements.
[[nodiscard]] Tensor from_vector(const std::vector<std::int64_t>& values);
[[nodiscard]] Tensor from_vector(const std::vector<std::int32_t>& values);
[[nodiscard]] Tensor from_vector(const std::vector<float>& values);
[[nodiscard]] Tensor from_vector(const std::vector<double>& values);
// Borrowed CPU memory, row-major: the caller keeps `data` alive as long as the tensor.
[[nodiscard]] Tensor from_blob(void* data, IntList shape, DType dtype);
[[nodiscard]] Tensor cat(const std::vector<Tensor>& parts, std::int64_t dim);
[[nodiscard]] Tensor stack(const std::vector<Tensor>& parts, std::int64_t dim);
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
// x.to(dtype), and x itself without a call where it has that dtype.
[[nodiscard]] inline Tensor cast(const Tensor& x, DType dtype) {
  return x.scalar_type() == dtype ? x : x.to(dtype);
}
// a_mk @ b_kn with fp32 accumulation (no TF32); bf16 on a CPU without AVX512-BF16/AMX is converted
// to fp32 and rounded once. Shapes that do not fit: kInternal, here and in the two below.
[[nodiscard]] Tensor matmul(const Tensor& a_mk, const Tensor& b_kn);
// The same plus bias_n; on GPUs added before the product is rounded.
[[nodiscard]] Tensor matmul_bias(const Tensor& a_mk, const Tensor& b_kn, const Tensor& bias_n);
// Whether products of x's dtype on its device are made in fp32 and rounded (16-bit floats on a CPU
// without instructions for them): they need room for wide copies.
[[nodiscard]] bool widens_products(const Tensor& x);
// out_mn (+)= a_mk @ b_kn in out's dtype, without a temporary of out's size when dtypes agree or
// the library can accumulate.
void matmul_into(Tensor out_mn, const Tensor& a_mk, const Tensor& b_kn, bool accumulate);
// Waits for the device of `t`.
[[nodiscard]] bool all_finite(const Tensor& t);
// 1 where t is infinite or NaN, else 0, in fp64 on t's device; the host does not wait.
[[nodiscard]] Tensor not_finite(const Tensor& t);

// Whether this thread records gradients, put back at the end of the scope.
class GradScope {
 public:
  GradScope(const GradScope&) = delete;
  GradScope& operator=(const GradScope&) = delete;

 protected:
  explicit GradScope(bool records);
  ~GradScope();

 private:
  bool previous_;
  std::uint64_t included_, excluded_;  // the library's dispatch keys of this thread
};
// Gradients are recorded between forward and backward only where a Backward is attached; op bodies
// run under NoGrad. Calls go straight to the device's kernels, past the library's own recording: a
// tensor changed in place there does not count as changed for a graph that was recorded before.
class NoGrad final : public GradScope {
 public:
  NoGrad() : GradScope(false) {}
};
class EnableGrad final : public GradScope {
 public:
  EnableGrad() : GradScope(true) {}
};
[[nodiscard]] bool grad_enabled();

// Called once in each rank thread: library threads, autograd on the calling thread only, gradients
// on. Fewer than one thread: kConfig.
void set_up_rank_thread(int threads);
// Called once in main, before other threads exist: deterministic algorithms (without NaN fill), the
// GPUs' full precision for fp32 and bf16 products, default settings that every process shares.
void set_up_process(bool deterministic);

}  // namespace pentatron::tensor
