// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/cross_entropy.h"

#include "pentatron/kernels/cross_entropy_rows.cuh"

// One block a row. Threads read V neighbours at a time where rows start at multiples of 16 bytes.
namespace pentatron::kernels {
namespace {

constexpr int kMaxThreads = 512;

template <typename T, int V, bool kSums>
__global__ void softmax_pieces_kernel(LogitRows logits, const T* __restrict__ x,
                                      const std::int64_t* __restrict__ labels,
                                      std::int64_t column_begin, ComputeOf<T>* __restrict__ max_t,
                                      ComputeOf<T>* __restrict__ sum_exp_t,
                                      ComputeOf<T>* __restrict__ target_t,
                                      ComputeOf<T>* __restrict__ logit_sum_t) {
  using C = ComputeOf<T>;
  __shared__ C maxima[32];
  __shared__ double sums[32];
  const std::int64_t row = blockIdx.x;
  const T* logit = x + row * logits.columns;
  RunningSum<T, kSums> mine;
  const std::int64_t whole = logits.valid / V * V;
#pragma unroll 2
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * V; c < whole;
       c += static_cast<std::int64_t>(blockDim.x) * V) {
    mine.take(load<V>(logit + c).v);
  }
  for (std::int64_t c = whole + threadIdx.x; c < logits.valid; c += blockDim.x) {
    const T one[1] = {logit[c]};
    mine.take(one);
  }
  const C largest = block_reduce(mine.largest, lowest<C>(), maxima, Larger{});
  // A thread sums a few hundred terms; the sum over threads keeps all their digits.
  const double total =
      block_sum(static_cast<double>(mine.sum * exp_of<false>(mine.largest - largest)), sums);
  if constexpr (kSums) {
    const double all = block_sum(static_cast<double>(mine.values_sum), sums);
    if (threadIdx.x == 0) logit_sum_t[row] = static_cast<C>(all);
  }
  if (threadIdx.x != 0) return;
  max_t[row] = largest;
  sum_exp_t[row] = static_cast<C>(total);
  const std::int64_t column = labels[row] - column_begin;
  target_t[row] = column >= 0 && column < logits.valid ? widen<C>(logit[column]) : C(0);
}

// kSmoothed: `every` is not 0 or `label` not 1.
template <typename T, int V, bool kSmoothed>
__global__ void softmax_gradient_kernel(LogitRows logits, T* __restrict__ x,
                                        const ComputeOf<T>* __restrict__ lse_t,
                                        const ComputeOf<T>* __restrict__ coefficient_t,
                                        const std::int64_t* __restrict__ labels,
                                        std::int64_t column_begin, SoftmaxTarget target) {
  using C = ComputeOf<T>;
  const std::int64_t row = blockIdx.x;
  T* logit = x + row * logits.columns;
  const C lse = lse_t[row], coefficient = coefficient_t[row];
  const std::int64_t label = labels[row] - column_begin;
  const auto gradient = [&](T in, std::int64_t c) {
    if (c >= logits.valid) return narrow<T>(C(0));
    const C p = exp_of<kFastExp<T>>(widen<C>(in) - lse);
    if constexpr (kSmoothed) {
      const C beside = p - static_cast<C>(target.every);
      return narrow<T>((c == label ? beside - static_cast<C>(target.label) : beside) * coefficient);
    } else {
      return narrow<T>((c == label ? p - C(1) : p) * coefficient);
    }
  };
  const std::int64_t whole = logits.columns / V * V;
#pragma unroll 2
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * V; c < whole;
       c += static_cast<std::int64_t>(blockDim.x) * V) {
    Vec<T, V> values = load<V>(logit + c);
#pragma unroll
    for (int i = 0; i < V; ++i) values.v[i] = gradient(values.v[i], c + i);
    store<V>(logit + c, values);
  }
  for (std::int64_t c = whole + threadIdx.x; c < logits.columns; c += blockDim.x) {
    logit[c] = gradient(logit[c], c);
  }
}

// Calls launch(vector width as a constant, threads).
template <typename T, typename F>
cudaError_t by_width(const LogitRows& logits, const T* x, F launch) {
  constexpr int V = kVector<T>;
  const bool whole = logits.columns % V == 0 && aligned16(x);
  const std::int64_t steps = logits.columns / (whole ? V : 1);
  const int threads = threads_for_row(steps, kMaxThreads);
  if (whole) {
    launch(std::integral_constant<int, V>{}, threads);
  } else {
    launch(std::integral_constant<int, 1>{}, threads);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t softmax_pieces(const LogitRows& logits, const void* x, const std::int64_t* labels,
                           std::int64_t column_begin, void* max_t, void* sum_exp_t, void* target_t,
                           void* logit_sum_t, cudaStream_t stream) {
  if (logits.rows == 0) return cudaSuccess;
  return dispatch(logits.type, [&](auto tag) {
    using T = decltype(tag);
    using C = ComputeOf<T>;
    const auto* in = static_cast<const T*>(x);
    return by_width(logits, in, [&](auto width, int threads) {
      const auto launch = [&](auto sums) {
        softmax_pieces_kernel<T, decltype(width)::value, decltype(sums)::value>
            <<<static_cast<unsigned>(logits.rows), threads, 0, stream>>>(
                logits, in, labels, column_begin, static_cast<C*>(max_t),
                static_cast<C*>(sum_exp_t), static_cast<C*>(target_t),
                static_cast<C*>(logit_sum_t));
      };
      if (logit_sum_t != nullptr) {
        launch(std::true_type{});
      } else {
        launch(std::false_type{});
      }
    });
  });
}

cudaError_t softmax_gradient(const LogitRows& logits, void* x, const void* lse_t,
                             const void* coefficient_t, const std::int64_t* labels,
                             std::int64_t column_begin, const SoftmaxTarget& target,
                             cudaStream_t stream) {
  if (logits.rows == 0 || logits.columns == 0) return cudaSuccess;
  return dispatch(logits.type, [&](auto tag) {
    using T = decltype(tag);
    using C = ComputeOf<T>;
    auto* in = static_cast<T*>(x);
    return by_width(logits, in, [&](auto width, int threads) {
      const auto launch = [&](auto smoothed) {
        softmax_gradient_kernel<T, decltype(width)::value, decltype(smoothed)::value>
            <<<static_cast<unsigned>(logits.rows), threads, 0, stream>>>(
                logits, in, static_cast<const C*>(lse_t), static_cast<const C*>(coefficient_t),
                labels, column_begin, target);
      };
      if (target.every != 0.0 || target.label != 1.0) {
        launch(std::true_type{});
      } else {
        launch(std::false_type{});
      }
    });
  });
}

}  // namespace pentatron::kernels
