// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "pentatron/kernels/types.h"

// Optimizer steps over flat slices; formulas stand in ops/adamw.h. Every element is rounded
// operation by operation, as on the CPU, so the result does not depend on how a slice is cut. All
// slices are [count]; moments have the parameter's type.
namespace pentatron::kernels {

inline constexpr int kNumRates = 3;

// fp64 scalars in device memory; null where the op's scalar is undefined.
struct StepScalars {
  const double* rates[kNumRates];  // never null; a slice says which is its own
  const double* step;
  const double* grad_scale;
  const double* weight_decay;
  const double* skip;
};

// One slice of a parameter with its gradient and state.
struct FlatSlice {
  void* param;
  const void* grad;
  void* first;   // null: SGD without momentum
  void* second;  // Adam
  std::int64_t count;
  double eps_factor;  // of AdamConfig::eps
  std::int32_t rate;  // number in StepScalars::rates
  bool decays;        // false: weight decay 0
};
// All slices of a call, in host memory. They travel as launch arguments, up to kSlicesOfALaunch in
// one launch.
struct FlatSlices {
  bool wide;  // parameters and state are fp64, else fp32
  Type grad_type;
  const FlatSlice* slices;
  std::size_t num_slices;
};
inline constexpr int kSlicesOfALaunch = 512;

struct AdamConfig {
  double beta1, beta2, eps, weight_decay;
};
[[nodiscard]] cudaError_t adamw_step(const FlatSlices& slices, const StepScalars& scalars,
                                     const AdamConfig& config, cudaStream_t stream);

[[nodiscard]] cudaError_t sgd_step(const FlatSlices& slices, const StepScalars& scalars,
                                   double momentum, double weight_decay, cudaStream_t stream);

}  // namespace pentatron::kernels
