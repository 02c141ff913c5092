// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/optimizer.h"

#include "pentatron/kernels/common.cuh"

namespace pentatron::kernels {
namespace {

constexpr int kThreads = 256;

// Operations that the compiler may not fuse: both widths of a kernel, and the CPU, give equal bits.
__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float sub(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ double sub(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ float quotient(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ double quotient(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ float root(float a) { return __fsqrt_rn(a); }
__device__ __forceinline__ double root(double a) { return __dsqrt_rn(a); }

__device__ __forceinline__ double scalar_or(const double* scalar, double otherwise) {
  return scalar != nullptr ? *scalar : otherwise;
}

template <typename C>
struct AdamConstants {
  C lr, beta1, beta2, rest1, rest2, eps, weight_decay, grad_scale, correction1, correction2;
};

template <typename C>
__device__ AdamConstants<C> adam_constants(const StepScalars& s, const AdamConfig& config) {
  const double step = *s.step;
  AdamConstants<C> k;
  k.lr = static_cast<C>(*s.lr);
  k.beta1 = static_cast<C>(config.beta1);
  k.beta2 = static_cast<C>(config.beta2);
  k.rest1 = sub(C(1), k.beta1);
  k.rest2 = sub(C(1), k.beta2);
  k.eps = static_cast<C>(config.eps);
  k.weight_decay = static_cast<C>(mul(config.weight_decay, scalar_or(s.weight_decay, 1.0)));
  k.grad_scale = static_cast<C>(scalar_or(s.grad_scale, 1.0));
  k.correction1 = static_cast<C>(sub(1.0, pow(config.beta1, step)));
  k.correction2 = static_cast<C>(sub(1.0, pow(config.beta2, step)));
  return k;
}

template <typename C>
__device__ __forceinline__ void adam_element(const AdamConstants<C>& k, C grad, C& p, C& m, C& v) {
  const C g = mul(grad, k.grad_scale);
  m = add(mul(k.beta1, m), mul(k.rest1, g));
  v = add(mul(k.beta2, v), mul(mul(k.rest2, g), g));
  const C update =
      quotient(quotient(m, k.correction1), add(root(quotient(v, k.correction2)), k.eps));
  p = sub(p, mul(k.lr, add(mul(k.weight_decay, p), update)));
}

template <typename C, typename G, int V>
__global__ void adamw_kernel(C* __restrict__ param, const G* __restrict__ grad,
                             C* __restrict__ exp_avg, C* __restrict__ exp_avg_sq,
                             std::int64_t count, StepScalars scalars, AdamConfig config) {
  __shared__ AdamConstants<C> shared;
  if (scalar_or(scalars.skip, 0.0) != 0.0) return;  // the same for every thread
  if (threadIdx.x == 0) shared = adam_constants<C>(scalars, config);
  __syncthreads();
  const AdamConstants<C> k = shared;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t whole = count / V * V;
  for (std::int64_t at = thread * V; at < whole; at += threads * V) {
    Vec<C, V> p = load<V>(param + at), m = load<V>(exp_avg + at), v = load<V>(exp_avg_sq + at);
    const Vec<G, V> g = load<V>(grad + at);
#pragma unroll
    for (int i = 0; i < V; ++i) adam_element(k, widen<C>(g.v[i]), p.v[i], m.v[i], v.v[i]);
    store<V>(param + at, p);
    store<V>(exp_avg + at, m);
    store<V>(exp_avg_sq + at, v);
  }
  for (std::int64_t at = whole + thread; at < count; at += threads) {
    adam_element(k, widen<C>(grad[at]), param[at], exp_avg[at], exp_avg_sq[at]);
  }
}

template <typename C>
struct SgdConstants {
  C lr, momentum, weight_decay, grad_scale;
};

template <typename C>
__device__ __forceinline__ void sgd_element(const SgdConstants<C>& k, C grad, C& p, C* m) {
  const C pull = add(mul(grad, k.grad_scale), mul(k.weight_decay, p));
  if (m == nullptr) {
    p = sub(p, mul(k.lr, pull));
    return;
  }
  *m = add(mul(k.momentum, *m), pull);
  p = sub(p, mul(k.lr, *m));
}

template <typename C, typename G, int V>
__global__ void sgd_kernel(C* __restrict__ param, const G* __restrict__ grad,
                           C* __restrict__ buffer, std::int64_t count, StepScalars scalars,
                           double momentum, double weight_decay) {
  if (scalar_or(scalars.skip, 0.0) != 0.0) return;
  const SgdConstants<C> k{
      .lr = static_cast<C>(*scalars.lr),
      .momentum = static_cast<C>(momentum),
      .weight_decay = static_cast<C>(mul(weight_decay, scalar_or(scalars.weight_decay, 1.0))),
      .grad_scale = static_cast<C>(scalar_or(scalars.grad_scale, 1.0))};
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t whole = count / V * V;
  for (std::int64_t at = thread * V; at < whole; at += threads * V) {
    Vec<C, V> p = load<V>(param + at), m{};
    if (buffer != nullptr) m = load<V>(buffer + at);
    const Vec<G, V> g = load<V>(grad + at);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      sgd_element(k, widen<C>(g.v[i]), p.v[i], buffer != nullptr ? &m.v[i] : nullptr);
    }
    store<V>(param + at, p);
    if (buffer != nullptr) store<V>(buffer + at, m);
  }
  for (std::int64_t at = whole + thread; at < count; at += threads) {
    sgd_element(k, widen<C>(grad[at]), param[at], buffer != nullptr ? buffer + at : nullptr);
  }
}

// Calls launch(C{}, G{}) for the state's and the gradient's types.
template <typename F>
cudaError_t by_types(const FlatSlices& slices, F launch) {
  return dispatch(slices.grad_type, [&](auto grad) {
    if (slices.wide) return launch(double{}, grad);
    return launch(float{}, grad);
  });
}

}  // namespace

cudaError_t adamw_step(const FlatSlices& slices, void* exp_avg, void* exp_avg_sq,
                       const StepScalars& scalars, const AdamConfig& config, cudaStream_t stream) {
  if (slices.count == 0) return cudaSuccess;
  return by_types(slices, [&](auto compute, auto grad) {
    using C = decltype(compute);
    using G = decltype(grad);
    constexpr int V = kVector<C>;
    auto* p = static_cast<C*>(slices.param);
    const auto* g = static_cast<const G*>(slices.grad);
    auto *m = static_cast<C*>(exp_avg), *v = static_cast<C*>(exp_avg_sq);
    if (aligned16(p, g, m, v)) {
      adamw_kernel<C, G, V>
          <<<grid_for((slices.count + V - 1) / V, kThreads), kThreads, 0, stream>>>(
              p, g, m, v, slices.count, scalars, config);
    } else {
      adamw_kernel<C, G, 1><<<grid_for(slices.count, kThreads), kThreads, 0, stream>>>(
          p, g, m, v, slices.count, scalars, config);
    }
    return cudaGetLastError();
  });
}

cudaError_t sgd_step(const FlatSlices& slices, void* momentum_buffer, const StepScalars& scalars,
                     double momentum, double weight_decay, cudaStream_t stream) {
  if (slices.count == 0) return cudaSuccess;
  return by_types(slices, [&](auto compute, auto grad) {
    using C = decltype(compute);
    using G = decltype(grad);
    constexpr int V = kVector<C>;
    auto* p = static_cast<C*>(slices.param);
    const auto* g = static_cast<const G*>(slices.grad);
    auto* m = static_cast<C*>(momentum_buffer);
    if (aligned16(p, g, m)) {
      sgd_kernel<C, G, V><<<grid_for((slices.count + V - 1) / V, kThreads), kThreads, 0, stream>>>(
          p, g, m, slices.count, scalars, momentum, weight_decay);
    } else {
      sgd_kernel<C, G, 1><<<grid_for(slices.count, kThreads), kThreads, 0, stream>>>(
          p, g, m, slices.count, scalars, momentum, weight_decay);
    }
    return cudaGetLastError();
  });
}

}  // namespace pentatron::kernels
