// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/common.cuh"

// Copies from global into shared memory that run beside a thread's other work (PTX cp.async).
namespace pentatron::kernels {

__device__ __forceinline__ void copy_async16(void* shared, const void* global) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
// Ends a group of this thread's copies.
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kLeft of this thread's groups are under way.
template <int kLeft>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// A ring of kStages rows in shared memory. Each thread copies and reads vectors of 16 bytes of its
// own alone, so that no thread waits for another's: kVectors of each of kTensors.
template <int kStages, int kTensors, int kVectors>
class AsyncRing {
 public:
  static __host__ __device__ constexpr std::size_t bytes(int threads) {
    return std::size_t{16} * kStages * kTensors * kVectors * static_cast<std::size_t>(threads);
  }
  // One of the ring's rows.
  struct Stage {
    int offset;
  };

  explicit __device__ __forceinline__ AsyncRing(uint4* memory)
      : mine_(memory + threadIdx.x), threads_(static_cast<int>(blockDim.x)) {}

  __device__ __forceinline__ Stage stage(int number) const { return {number * stride()}; }
  __device__ __forceinline__ Stage after(Stage stage) const {
    const int next = stage.offset + stride();
    return {next == kStages * stride() ? 0 : next};
  }
  template <typename T, int V>
  __device__ __forceinline__ Vec<T, V> take(Stage stage, int tensor, int k) const {
    static_assert(sizeof(Vec<T, V>) == 16);
    return load<V>(reinterpret_cast<const T*>(place(stage, tensor, k)));
  }
  __device__ __forceinline__ void copy(Stage stage, int tensor, int k, const void* from) const {
    copy_async16(place(stage, tensor, k), from);
  }
  // A vector that nothing is copied to counts as zeros.
  __device__ __forceinline__ void clear(int k) const {
    for (int number = 0; number < kStages; ++number) {
      for (int tensor = 0; tensor < kTensors; ++tensor) *place(stage(number), tensor, k) = uint4{};
    }
  }

 private:
  __device__ __forceinline__ int stride() const { return kTensors * kVectors * threads_; }
  __device__ __forceinline__ uint4* place(Stage stage, int tensor, int k) const {
    return mine_ + stage.offset + (tensor * kVectors + k) * threads_;
  }

  uint4* mine_;
  int threads_;
};

// A kernel gets more shared memory than 48 KiB where that was asked for.
template <typename Kernel>
cudaError_t allow_shared_memory(Kernel kernel, std::size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

}  // namespace pentatron::kernels
