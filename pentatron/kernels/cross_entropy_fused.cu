// SPDX-License-Identifier: Apache-2.0
#include <cooperative_groups.h>

#include "pentatron/kernels/async_ring.cuh"
#include "pentatron/kernels/cross_entropy.h"
#include "pentatron/kernels/cross_entropy_rows.cuh"

// A row lies in the shared memory of a cluster of blocks, a part each, between its maximum and its
// gradient: memory is read once and written once.
namespace pentatron::kernels {
namespace {

namespace cg = cooperative_groups;

constexpr int kMaxThreads = 512;
constexpr std::int64_t kPartBytes = 112000;  // two blocks fit into a multiprocessor
constexpr unsigned kMostParts = 8;           // what every GPU grants
constexpr int kCopyGroups = 4;               // the work on a row begins with its first group

__device__ __forceinline__ std::int64_t least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// A block's share of a row: vectors of V logits from `begin` on.
struct RowPart {
  std::int64_t begin, count;
};
__device__ __forceinline__ RowPart part_of(std::int64_t vectors, unsigned part, unsigned parts) {
  const std::int64_t each = (vectors + parts - 1) / parts, begin = part * each;
  const std::int64_t left = vectors > begin ? vectors - begin : 0;
  return {begin, least(left, each)};
}

// Maximum and sum of a part, which the cluster's other blocks read.
struct PartSum {
  float largest;
  double sum;
};

// This block's part of a row into `held`, and its maximum and sum in every thread.
template <typename T>
__device__ __forceinline__ PartSum load_part(const T* __restrict__ x, const RowPart& part,
                                             std::int64_t valid, uint4* held) {
  constexpr int V = kVector<T>;
  __shared__ float maxima[32];
  __shared__ double sums[32];
  const std::int64_t step = blockDim.x;
  const std::int64_t turns = (part.count + step - 1) / step;
  const std::int64_t group = (turns + kCopyGroups - 1) / kCopyGroups * step;
#pragma unroll
  for (int g = 0; g < kCopyGroups; ++g) {
    const std::int64_t end = least(part.count, (g + 1) * group);
    for (std::int64_t v = g * group + threadIdx.x; v < end; v += step) {
      copy_async16(&held[v], x + (part.begin + v) * V);
    }
    end_copies();
  }
  RunningSum<T, false> mine;
  const auto take = [&](int g) {
    const std::int64_t end = least(part.count, (g + 1) * group);
    for (std::int64_t v = g * group + threadIdx.x; v < end; v += step) {
      const auto values = load<V>(reinterpret_cast<const T*>(&held[v]));
      const std::int64_t left = valid - (part.begin + v) * V;
      if (left >= V) {
        mine.take(values.v);
        continue;
      }
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const T one[1] = {values.v[i]};
        if (i < left) mine.take(one);
      }
    }
  };
  await_copies<3>();
  take(0);
  await_copies<2>();
  take(1);
  await_copies<1>();
  take(2);
  await_copies<0>();
  take(3);
  const float largest = block_reduce(mine.largest, lowest<float>(), maxima, Larger{});
  return {largest, block_sum(static_cast<double>(mine.sum * expf(mine.largest - largest)), sums)};
}

template <typename T>
__global__ void __launch_bounds__(kMaxThreads, 3)
    softmax_with_gradient_kernel(LogitRows logits, T* __restrict__ x,
                                 const std::int64_t* __restrict__ labels, std::int64_t column_begin,
                                 const float* __restrict__ coefficient_t, float* __restrict__ max_t,
                                 float* __restrict__ sum_exp_t, float* __restrict__ target_t) {
  constexpr int V = kVector<T>;
  extern __shared__ uint4 held[];
  __shared__ PartSum shared[kMostParts];
  const cg::cluster_group cluster = cg::this_cluster();
  const unsigned parts = cluster.num_blocks();
  const std::int64_t row = blockIdx.x / parts;
  const RowPart part = part_of(logits.columns / V, cluster.block_rank(), parts);
  T* logit = x + row * logits.columns;
  const std::int64_t label = labels[row] - column_begin;
  const float coefficient = coefficient_t[row];
  PartSum whole = load_part(logit, part, logits.valid, held);
  if (parts > 1) {
    // Each block writes to all, so that none reads another's memory when that one may have ended.
    if (threadIdx.x < parts)
      *cluster.map_shared_rank(&shared[cluster.block_rank()], threadIdx.x) = whole;
    cluster.sync();
    whole = shared[0];
    for (unsigned p = 1; p < parts; ++p) {
      const PartSum other = shared[p];
      const float largest = Larger{}(whole.largest, other.largest);
      whole.sum =
          whole.sum * expf(whole.largest - largest) + other.sum * expf(other.largest - largest);
      whole.largest = largest;
    }
  }
  const auto sum = static_cast<float>(whole.sum);
  const float lse = whole.largest + logf(sum);
  const bool counts = label >= 0 && label < logits.valid;
  const std::int64_t target = label / V - part.begin;
  if (threadIdx.x == 0) {
    if (cluster.block_rank() == 0) {
      max_t[row] = whole.largest;
      sum_exp_t[row] = sum;
      if (!counts) target_t[row] = 0.0f;
    }
    if (counts && target >= 0 && target < part.count) {
      target_t[row] = widen<float>(reinterpret_cast<const T*>(&held[target])[label % V]);
    }
  }
  for (std::int64_t v = threadIdx.x; v < part.count; v += blockDim.x) {
    auto values = load<V>(reinterpret_cast<const T*>(&held[v]));
    const std::int64_t c = (part.begin + v) * V;
    float gradient[V];
#pragma unroll
    for (int i = 0; i < V; ++i) gradient[i] = exp_of<kFastExp<T>>(widen<float>(values.v[i]) - lse);
    if (counts && v == target) {
#pragma unroll
      for (int i = 0; i < V; ++i) gradient[i] -= c + i == label ? 1.0f : 0.0f;
    }
    if (c + V > logits.valid) {
#pragma unroll
      for (int i = 0; i < V; ++i) gradient[i] = c + i < logits.valid ? gradient[i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < V; ++i) values.v[i] = narrow<T>(gradient[i] * coefficient);
    store<V>(logit + c, values);
  }
}

// Blocks that share a row: the fewest whose parts fit, 0 where even the most are too few.
unsigned parts_of(const LogitRows& logits, std::int64_t item) {
  for (unsigned parts = 1; parts <= kMostParts; parts *= 2) {
    if ((logits.columns * item + parts - 1) / parts <= kPartBytes) return parts;
  }
  return 0;
}

template <typename T>
cudaError_t launch(const LogitRows& logits, T* x, const std::int64_t* labels,
                   std::int64_t column_begin, const float* coefficient_t, float* max_t,
                   float* sum_exp_t, float* target_t, cudaStream_t stream) {
  constexpr int V = kVector<T>;
  const unsigned parts = parts_of(logits, sizeof(T));
  const std::int64_t each = (logits.columns / V + parts - 1) / parts;
  const auto kernel = softmax_with_gradient_kernel<T>;
  const auto bytes = static_cast<std::size_t>(each) * 16;
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = parts;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(logits.rows) * parts);
  config.blockDim = dim3(static_cast<unsigned>(threads_for_row(each, kMaxThreads)));
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, logits, x, labels, column_begin, coefficient_t, max_t,
                            sum_exp_t, target_t);
}

}  // namespace

bool softmax_with_gradient_fits(const LogitRows& logits, const void* x) {
  if (logits.type == Type::kDouble || !aligned16(x)) return false;
  const std::int64_t item = logits.type == Type::kFloat ? 4 : 2;
  constexpr std::int64_t kMostBlocks = 2147483647;
  return logits.columns * item % 16 == 0 && parts_of(logits, item) > 0 &&
         logits.rows <= kMostBlocks / kMostParts;
}

cudaError_t softmax_with_gradient(const LogitRows& logits, void* x, const std::int64_t* labels,
                                  std::int64_t column_begin, const float* coefficient_t,
                                  float* max_t, float* sum_exp_t, float* target_t,
                                  cudaStream_t stream) {
  if (logits.rows == 0 || logits.columns == 0) return cudaSuccess;
  return dispatch(logits.type, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_same_v<T, double>) {
      return cudaErrorInvalidValue;
    } else {
      return launch(logits, static_cast<T*>(x), labels, column_begin, coefficient_t, max_t,
                    sum_exp_t, target_t, stream);
    }
  });
}

}  // namespace pentatron::kernels
