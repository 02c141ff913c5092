// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/optimizer.h"

#include "pentatron/kernels/adam_math.cuh"
#include "pentatron/kernels/common.cuh"
#include "pentatron/kernels/slice_table.cuh"

namespace pentatron::kernels {
namespace {

constexpr int kThreads = 256;
using LaunchTable = SliceTable<FlatSlice, kSlicesOfALaunch>;

// Calls body(index) for elements [begin, end) of 16-byte vectors where `aligned`, else one by one.
template <typename C, typename G, int V, typename F>
__device__ __forceinline__ void update_vectors(const FlatSlice& slice, std::int64_t begin,
                                               std::int64_t end, F element) {
  auto* p_at = static_cast<C*>(slice.param);
  const auto* g_at = static_cast<const G*>(slice.grad);
  auto *m_at = static_cast<C*>(slice.first), *v_at = static_cast<C*>(slice.second);
  for (std::int64_t at = begin + threadIdx.x * V; at < end; at += kThreads * V) {
    Vec<C, V> p = load<V>(p_at + at), m{}, v{};
    const Vec<G, V> g = load<V>(g_at + at);
    if (m_at != nullptr) m = load<V>(m_at + at);
    if (v_at != nullptr) v = load<V>(v_at + at);
#pragma unroll
    for (int i = 0; i < V; ++i) element(widen<C>(g.v[i]), p.v[i], m.v[i], v.v[i]);
    store<V>(p_at + at, p);
    if (m_at != nullptr) store<V>(m_at + at, m);
    if (v_at != nullptr) store<V>(v_at + at, v);
  }
}

__device__ __forceinline__ std::int64_t least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// Elements up to the first line of 128 bytes; a slice's other parts usually stand as its parameters
// do.
template <typename C>
__device__ __forceinline__ std::int64_t elements_before_line(const FlatSlice& slice) {
  constexpr std::uintptr_t kLine = 128;
  const auto place = reinterpret_cast<std::uintptr_t>(slice.param) % kLine;
  return static_cast<std::int64_t>((kLine - place) % kLine / sizeof(C));
}

// element(gradient, p, m, v) over this block's chunk of the slice; m and v are zeros where the
// slice has none.
template <typename C, typename G, typename F>
__device__ __forceinline__ void update_chunk(const FlatSlice& slice, std::int32_t first_block,
                                             F element) {
  constexpr int V = kVector<C>;
  const bool vectors =
      aligned(slice.param) && aligned(slice.grad) && aligned(slice.first) && aligned(slice.second);
  // Chunks begin where a line of the parameters does: what comes before is the first block's too.
  const std::int64_t head = vectors ? elements_before_line<C>(slice) : 0;
  const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) - first_block;
  const std::int64_t end = least(number * kSliceChunk + head + kSliceChunk, slice.count);
  const std::int64_t begin = number == 0 ? 0 : least(number * kSliceChunk + head, end);
  const std::int64_t whole = vectors ? begin + (end - begin) / V * V : begin;
  if (vectors) {
    const std::int64_t line = number == 0 ? least(head, whole) : begin;
    update_vectors<C, G, V>(slice, begin, line, element);
    update_vectors<C, G, V>(slice, line, whole, element);
  }
  update_vectors<C, G, 1>(slice, whole, end, element);
}

template <typename C, typename G>
__global__ void adamw_kernel(const __grid_constant__ LaunchTable table, StepScalars scalars,
                             AdamConfig config) {
  __shared__ AdamConstants<C> shared;
  if (scalar_or(scalars.skip, 0.0) != 0.0) return;  // the same for every thread
  const int index = slice_of_block(table);
  const FlatSlice& slice = table.slices[index];
  if (threadIdx.x == 0) shared = adam_constants<C>(scalars, config, slice);
  __syncthreads();
  const AdamConstants<C> k = shared;
  update_chunk<C, G>(slice, table.first_block[index],
                     [&](C grad, C& p, C& m, C& v) { adam_element(k, grad, p, m, v); });
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

template <typename C, typename G>
__global__ void sgd_kernel(const __grid_constant__ LaunchTable table, StepScalars scalars,
                           double momentum, double weight_decay) {
  if (scalar_or(scalars.skip, 0.0) != 0.0) return;
  const int index = slice_of_block(table);
  const FlatSlice& slice = table.slices[index];
  const SgdConstants<C> k{
      .lr = static_cast<C>(*scalars.rates[slice.rate]),
      .momentum = static_cast<C>(momentum),
      .weight_decay = slice.decays
                          ? static_cast<C>(mul(weight_decay, scalar_or(scalars.weight_decay, 1.0)))
                          : C(0),
      .grad_scale = static_cast<C>(scalar_or(scalars.grad_scale, 1.0))};
  const bool has_momentum = slice.first != nullptr;
  update_chunk<C, G>(slice, table.first_block[index], [&](C grad, C& p, C& m, C&) {
    sgd_element(k, grad, p, has_momentum ? &m : nullptr);
  });
}

// Calls launch(C{}, G{}, table, blocks) for the state's and the gradient's types, once for every
// kSlicesOfALaunch slices that are not empty.
template <typename F>
cudaError_t launch_all(const FlatSlices& all, F launch) {
  static_assert(sizeof(LaunchTable) + sizeof(StepScalars) + sizeof(AdamConfig) <=
                kMaxArgumentBytes);
  LaunchTable table;
  return launch_slices(
      table, all.slices, all.num_slices, [](const FlatSlice& slice) { return slice.count; },
      [&](std::int32_t blocks) {
        return dispatch(all.grad_type, [&](auto grad) {
          if (all.wide) return launch(double{}, grad, table, blocks);
          return launch(float{}, grad, table, blocks);
        });
      });
}

}  // namespace

cudaError_t adamw_step(const FlatSlices& slices, const StepScalars& scalars,
                       const AdamConfig& config, cudaStream_t stream) {
  return launch_all(slices, [&](auto compute, auto grad, const LaunchTable& table, int blocks) {
    adamw_kernel<decltype(compute), decltype(grad)>
        <<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(table, scalars, config);
    return cudaGetLastError();
  });
}

cudaError_t sgd_step(const FlatSlices& slices, const StepScalars& scalars, double momentum,
                     double weight_decay, cudaStream_t stream) {
  return launch_all(slices, [&](auto compute, auto grad, const LaunchTable& table, int blocks) {
    sgd_kernel<decltype(compute), decltype(grad)>
        <<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(table, scalars, momentum,
                                                                 weight_decay);
    return cudaGetLastError();
  });
}

}  // namespace pentatron::kernels
