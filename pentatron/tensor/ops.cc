// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/ops.h"

#include <malloc.h>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Logging.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "pentatron/base/error.h"
#include "pentatron/tensor/parallel.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::tensor {
namespace {

at::TensorOptions options_of(DType dtype, Device device) {
  return at::TensorOptions().dtype(dtype).device(device);
}

template <typename T>
Tensor copy_vector(const std::vector<T>& values, DType dtype) {
  Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, options_of(dtype, kCpu));
  if (!values.empty()) std::memcpy(out.data_ptr(), values.data(), values.size() * sizeof(T));
  return out;
}

// x * 0 is 0 for finite x and NaN otherwise, so one sum over lanes decides without a branch an
// element.
template <typename T>
bool finite_range(const T* data, std::int64_t count) {
  constexpr int kLanes = 16;
  T lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += data[i + lane] * T(0);
  }
  for (; i < count; ++i) lanes[0] += data[i] * T(0);
  T total = 0;
  for (const T lane : lanes) total += lane;
  return total == T(0);
}

template <typename T>
bool all_finite_of(const Tensor& t) {
  const T* data = t.const_data_ptr<T>();
  std::atomic<bool> finite{true};
  parallel_for(0, t.numel(), 1 << 16, [&](std::int64_t from, std::int64_t to) {
    if (!finite_range(data + from, to - from)) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load();
}

}  // namespace

// Straight to the allocator on CPUs: a step of a small model makes a hundred tensors.
Tensor empty(IntList shape, DType dtype, Device device) {
  if (device.is_cpu()) return Tensor(at::detail::empty_cpu(shape, dtype));
  return at::empty(shape, options_of(dtype, device));
}
Tensor zeros(IntList shape, DType dtype, Device device) {
  constexpr std::size_t kByOneThread = std::size_t{1} << 18;
  if (device.is_cpu()) {
    Tensor out(at::detail::empty_cpu(shape, dtype));
    if (out.nbytes() > kByOneThread) return out.zero_();
    if (out.nbytes() > 0) std::memset(out.data_ptr(), 0, out.nbytes());
    return out;
  }
  return at::zeros(shape, options_of(dtype, device));
}
Tensor ones(IntList shape, DType dtype, Device device) {
  return at::ones(shape, options_of(dtype, device));
}
Tensor full(IntList shape, double value, DType dtype, Device device) {
  return at::full(shape, value, options_of(dtype, device));
}
Tensor arange(std::int64_t end, DType dtype, Device device) {
  return at::arange(end, options_of(dtype, device));
}
Tensor scalar(double value, DType dtype, Device device) {
  if (device.is_cpu() && dtype == DType::Double) {
    Tensor out = empty({}, dtype);
    *out.data_ptr<double>() = value;
    return out;
  }
  return at::full({}, value, options_of(dtype, device));
}

Tensor from_vector(const std::vector<std::int64_t>& values) {
  return copy_vector(values, DType::Long);
}
Tensor from_vector(const std::vector<std::int32_t>& values) {
  return copy_vector(values, DType::Int);
}
Tensor from_vector(const std::vector<float>& values) { return copy_vector(values, DType::Float); }
Tensor from_vector(const std::vector<double>& values) { return copy_vector(values, DType::Double); }

Tensor from_blob(void* data, IntList shape, DType dtype) {
  return at::from_blob(data, shape, options_of(dtype, kCpu));
}

Tensor cat(const std::vector<Tensor>& parts, std::int64_t dim) { return at::cat(parts, dim); }
Tensor stack(const std::vector<Tensor>& parts, std::int64_t dim) { return at::stack(parts, dim); }
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return at::where(condition, a, b);
}

bool all_finite(const Tensor& t) {
  if (!t.is_floating_point() || t.numel() == 0) return true;
  if (t.device().is_cpu() && t.is_contiguous()) {
    if (t.scalar_type() == DType::Float) return all_finite_of<float>(t);
    if (t.scalar_type() == DType::Double) return all_finite_of<double>(t);
  }
  return t.isfinite().all().item<bool>();
}

// x - x is 0 for numbers and NaN for the rest, and NaN differs from everything.
Tensor not_finite(const Tensor& t) {
  if (t.is_cpu() && t.dim() == 0 && t.scalar_type() == kAccumulationDType) {
    return scalar(std::isfinite(*t.const_data_ptr<double>()) ? 0.0 : 1.0, kAccumulationDType);
  }
  return t.sub(t).ne(0).to(kAccumulationDType);
}

namespace {

void set_dispatch_keys(std::uint64_t included, std::uint64_t excluded) {
  c10::impl::PODLocalDispatchKeySet keys{};
  keys.set_included(c10::DispatchKeySet(c10::DispatchKeySet::RAW, included));
  keys.set_excluded(c10::DispatchKeySet(c10::DispatchKeySet::RAW, excluded));
  c10::impl::_force_tls_local_dispatch_key_set(c10::impl::LocalDispatchKeySet(keys));
}

}  // namespace

GradScope::GradScope(bool records) : previous_(c10::GradMode::is_enabled()) {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  const std::uint64_t recording = c10::autograd_dispatch_keyset_with_ADInplaceOrView.raw_repr();
  included_ = keys.included_.raw_repr();
  excluded_ = keys.excluded_.raw_repr();
  c10::GradMode::set_enabled(records);
  set_dispatch_keys(included_, records ? excluded_ & ~recording : excluded_ | recording);
}
GradScope::~GradScope() {
  c10::GradMode::set_enabled(previous_);
  set_dispatch_keys(included_, excluded_);
}
bool grad_enabled() { return c10::GradMode::is_enabled(); }

void set_up_rank_thread(int threads) {
  PENTATRON_CHECK(threads >= 1, kConfig, "threads of a rank must be at least 1, got {}", threads);
  set_num_threads(threads);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  c10::GradMode::set_enabled(true);
}

void set_up_process(bool deterministic) {
  // Read when the library makes its first handle on a GPU.
  if (deterministic) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(deterministic, false);
  // The library otherwise fills every fresh tensor with NaN in deterministic mode.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  // On GPUs: fp32 means fp32, and sums of bf16 products are kept in fp32 to their end.
  at::globalContext().setAllowTF32CuBLAS(false);
  at::globalContext().setAllowTF32CuDNN(false);
  c10::initLogging();
  // A step frees what the next one allocates: pages that went back to the system in between would
  // have to be mapped and cleared again. The values are the largest that the allocator takes.
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

}  // namespace pentatron::tensor
