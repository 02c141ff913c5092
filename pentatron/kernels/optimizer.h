// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/types.h"

// Optimizer steps over flat slices; formulas stand in ops/adamw.h. Every element is rounded
// operation by operation, as on the CPU, so the result does not depend on how a slice is cut. All
// slices are [count]; moments have the parameter's type.
namespace pentatron::kernels {

// fp64 scalars in device memory; null where the op's scalar is undefined.
struct StepScalars {
  const double* lr;
  const double* step;
  const double* grad_scale;
  const double* weight_decay;
  const double* skip;
};

struct FlatSlices {
  bool wide;  // parameter and state are fp64, else fp32
  Type grad_type;
  std::int64_t count;
  void* param;
  const void* grad;
};

struct AdamConfig {
  double beta1, beta2, eps, weight_decay;
};
[[nodiscard]] cudaError_t adamw_step(const FlatSlices& slices, void* exp_avg, void* exp_avg_sq,
                                     const StepScalars& scalars, const AdamConfig& config,
                                     cudaStream_t stream);

// momentum_buffer null: no momentum.
[[nodiscard]] cudaError_t sgd_step(const FlatSlices& slices, void* momentum_buffer,
                                   const StepScalars& scalars, double momentum, double weight_decay,
                                   cudaStream_t stream);

}  // namespace pentatron::kernels
