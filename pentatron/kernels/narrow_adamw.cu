// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/narrow_adamw.h"

#include "pentatron/base/philox.h"
#include "pentatron/kernels/adam_math.cuh"
#include "pentatron/kernels/slice_table.cuh"

namespace pentatron::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 8;  // elements of a thread, and draws of one Philox call
constexpr int kNarrowSlices = 240;

struct LaunchTable : SliceTable<NarrowSlice, kNarrowSlices> {
  bool state_is_bf16[kNumNarrowStates];
  bool grad_is_bf16;
};

// Eight neighbours as fp32; `count` of them are there, and `vectors` says that all are, aligned.
struct Group {
  float v[kGroup];
};

__device__ __forceinline__ Group load_group(const void* data, bool bf16, std::int64_t at, int count,
                                            bool vectors) {
  Group out{};
  if (bf16) {
    const auto* p = static_cast<const __nv_bfloat16*>(data) + at;
    if (vectors) {
      const auto x = load<kGroup>(p);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) out.v[i] = __bfloat162float(x.v[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        if (i < count) out.v[i] = __bfloat162float(p[i]);
      }
    }
    return out;
  }
  const auto* p = static_cast<const float*>(data) + at;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    if (i < count) out.v[i] = p[i];
  }
  return out;
}

// One of the two bf16 neighbours, as tensor/random.h has it.
__device__ __forceinline__ __nv_bfloat16 round_by(float x, std::uint32_t draw) {
  const std::uint32_t bits = __float_as_uint(x);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t kept = nan ? (bits >> 16) | 0x40u : (bits + draw) >> 16;
  return __ushort_as_bfloat16(static_cast<unsigned short>(kept));
}

// Where a thread's elements stand: element `first` of the logical tensor, and whether the eight
// are one aligned group of it, whose draws are one call.
struct Place {
  std::int64_t local;  // of the slice
  bool one_group;
};

__device__ __forceinline__ std::int64_t element_of(const NarrowSlice& s, std::int64_t local) {
  const std::int64_t inside = s.first + local;
  const std::int64_t row = inside / s.width;
  return (row + s.row_offset) * s.logical_width + s.column_offset + (inside - row * s.width);
}

__device__ __forceinline__ PhiloxDraws draws_of(std::int64_t group, std::uint32_t stream,
                                                std::uint64_t step, std::uint64_t site) {
  const PhiloxWords counter = {{static_cast<std::uint32_t>(group), stream,
                                static_cast<std::uint32_t>(step),
                                static_cast<std::uint32_t>(step >> 32)}};
  const PhiloxKey key = {
      {static_cast<std::uint32_t>(site), static_cast<std::uint32_t>(site >> 32)}};
  return philox_draws(philox4x32_10(counter, key));
}

__device__ __forceinline__ void store_group(void* data, bool bf16, const NarrowSlice& s, int state,
                                            const Place& place, int count, bool vectors,
                                            std::uint64_t step, std::uint64_t site,
                                            const Group& x) {
  if (!bf16) {
    auto* p = static_cast<float*>(data) + place.local;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (i < count) p[i] = x.v[i];
    }
    return;
  }
  auto* p = static_cast<__nv_bfloat16*>(data) + place.local;
  if (place.one_group) {
    const std::int64_t group = element_of(s, place.local) / kGroup;
    const PhiloxDraws draws = draws_of(group, s.streams[state], step, site);
    Vec<__nv_bfloat16, kGroup> out;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) out.v[i] = round_by(x.v[i], draws.v[i]);
    if (vectors) {
      store<kGroup>(p, out);
    } else {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) p[i] = out.v[i];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    if (i >= count) continue;
    const std::int64_t element = element_of(s, place.local + i);
    const PhiloxDraws draws = draws_of(element / kGroup, s.streams[state], step, site);
    std::uint32_t draw = 0;
#pragma unroll
    for (int lane = 0; lane < kGroup; ++lane) {
      if (lane == static_cast<int>(element % kGroup)) draw = draws.v[lane];
    }
    p[i] = round_by(x.v[i], draw);
  }
}

__global__ void narrow_adamw_kernel(const __grid_constant__ LaunchTable table, StepScalars scalars,
                                    AdamConfig config, std::uint64_t site) {
  __shared__ AdamConstants<float> shared;
  if (scalar_or(scalars.skip, 0.0) != 0.0) return;  // the same for every thread
  const int index = slice_of_block(table);
  const NarrowSlice& s = table.slices[index];
  const FlatSlice& slice = s.slice;
  if (threadIdx.x == 0) shared = adam_constants<float>(scalars, config, slice);
  __syncthreads();
  const AdamConstants<float> k = shared;
  const auto step = static_cast<std::uint64_t>(*scalars.step);
  const bool vectors =
      aligned(slice.param) && aligned(slice.grad) && aligned(slice.first) && aligned(slice.second);
  const std::int64_t begin =
      (static_cast<std::int64_t>(blockIdx.x) - table.first_block[index]) * kSliceChunk;
  const std::int64_t end = begin + kSliceChunk < slice.count ? begin + kSliceChunk : slice.count;
  for (std::int64_t at = begin + threadIdx.x * kGroup; at < end; at += blockDim.x * kGroup) {
    const int count = end - at < kGroup ? static_cast<int>(end - at) : kGroup;
    const bool whole = count == kGroup;
    const std::int64_t column = (s.first + at) % s.width;
    const Place place{.local = at,
                      .one_group = whole && element_of(s, at) % kGroup == 0 &&
                                   (column + kGroup <= s.width || s.width == s.logical_width)};
    const bool wide = vectors && whole;
    Group p = load_group(slice.param, table.state_is_bf16[0], at, count, wide);
    Group m = load_group(slice.first, table.state_is_bf16[1], at, count, wide);
    Group v = load_group(slice.second, table.state_is_bf16[2], at, count, wide);
    const Group g = load_group(slice.grad, table.grad_is_bf16, at, count, wide);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) adam_element(k, g.v[i], p.v[i], m.v[i], v.v[i]);
    store_group(slice.param, table.state_is_bf16[0], s, 0, place, count, wide, step, site, p);
    store_group(slice.first, table.state_is_bf16[1], s, 1, place, count, wide, step, site, m);
    store_group(slice.second, table.state_is_bf16[2], s, 2, place, count, wide, step, site, v);
  }
}

}  // namespace

cudaError_t narrow_adamw_step(const NarrowSlices& slices, const StepScalars& scalars,
                              const AdamConfig& config, std::uint64_t site, cudaStream_t stream) {
  static_assert(sizeof(LaunchTable) + sizeof(StepScalars) + sizeof(AdamConfig) +
                    sizeof(std::uint64_t) <=
                kMaxArgumentBytes);
  LaunchTable table;
  for (int i = 0; i < kNumNarrowStates; ++i) table.state_is_bf16[i] = slices.state_is_bf16[i];
  table.grad_is_bf16 = slices.grad_is_bf16;
  return launch_slices(
      table, slices.slices, slices.num_slices,
      [](const NarrowSlice& slice) { return slice.slice.count; },
      [&](std::int32_t blocks) {
        narrow_adamw_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(table, scalars,
                                                                                    config, site);
        return cudaGetLastError();
      });
}

}  // namespace pentatron::kernels
