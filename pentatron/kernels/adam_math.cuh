// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/common.cuh"
#include "pentatron/kernels/optimizer.h"

// Adam's arithmetic on one element, for all kernels that update by it (formula: ops/adamw.h).
namespace pentatron::kernels {

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
__device__ AdamConstants<C> adam_constants(const StepScalars& s, const AdamConfig& config,
                                           const FlatSlice& slice) {
  const double step = *s.step;
  AdamConstants<C> k;
  k.lr = static_cast<C>(*s.rates[slice.rate]);
  k.beta1 = static_cast<C>(config.beta1);
  k.beta2 = static_cast<C>(config.beta2);
  k.rest1 = sub(C(1), k.beta1);
  k.rest2 = sub(C(1), k.beta2);
  k.eps = static_cast<C>(mul(config.eps, slice.eps_factor));
  k.weight_decay = slice.decays
                       ? static_cast<C>(mul(config.weight_decay, scalar_or(s.weight_decay, 1.0)))
                       : C(0);
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

}  // namespace pentatron::kernels
