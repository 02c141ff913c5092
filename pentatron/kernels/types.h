// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// What all launchers share. A launcher takes raw device pointers and a stream, starts its kernels
// and returns the runtime's last error: cudaSuccess means started, not finished. Nothing is
// allocated and nothing waits, so every launcher can be captured in a graph. Kernels use no atomic
// sums: results depend on their inputs and sizes alone.
namespace pentatron::kernels {

// How elements are stored; arithmetic is in fp64 for kDouble, else in fp32.
enum class Type { kFloat, kBFloat16, kHalf, kDouble };

// A gradient's place: dtype and whether the first value overwrites or adds.
struct Slot {
  void* data;
  Type type;
  bool accumulate;
};

}  // namespace pentatron::kernels
