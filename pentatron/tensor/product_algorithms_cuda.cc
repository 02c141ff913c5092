// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/product_algorithms.h"

namespace pentatron::tensor {
namespace {

constexpr int kCandidates = 8;
constexpr int kTimedRuns = 3;
// A search takes milliseconds; data of ever new sizes shall not pay for it in every step.
constexpr int kMaxSearches = 64;
// What another algorithm must save to take the place of the library's first choice.
constexpr float kWorthwhile = 0.98F;

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(AlgorithmWords));

void check(cublasStatus_t status, std::string_view what) {
  PENTATRON_CHECK(status == CUBLAS_STATUS_SUCCESS, kCuda, "cuBLASLt: {}: {}", what,
                  cublasLtGetStatusString(status));
}
void check(cudaError_t status, std::string_view what) {
  PENTATRON_CHECK(status == cudaSuccess, kCuda, "{}: {}", what, cudaGetErrorString(status));
}

struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t p) const {
    static_cast<void>(cublasLtMatmulPreferenceDestroy(p));
  }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { static_cast<void>(cudaEventDestroy(event)); }
};
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "an event for timing");
  return Event(event);
}

// The library's guesses, the best first.
std::vector<cublasLtMatmulAlgo_t> candidates(const LibraryProduct& in, const ProductKey& key,
                                             int most) {
  cublasLtMatmulPreference_t raw = nullptr;
  check(cublasLtMatmulPreferenceCreate(&raw), "preference");
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, DestroyPreference> owner(
      raw);
  const auto bytes = static_cast<std::uint64_t>(kProductWorkspaceBytes);
  check(cublasLtMatmulPreferenceSetAttribute(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                             sizeof(bytes)),
        "preference");
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results = {};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      in.handle, in.description, in.a_layout, in.b_layout, in.out_layout, in.out_layout, raw, most,
      results.data(), &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "choice of an algorithm");
  std::vector<cublasLtMatmulAlgo_t> all;
  for (int i = 0; i < found; ++i) {
    const auto& result = results.at(static_cast<std::size_t>(i));
    if (result.state == CUBLAS_STATUS_SUCCESS) all.push_back(result.algo);
  }
  PENTATRON_CHECK(
      !all.empty(), kUnsupported,
      "cuBLASLt has no algorithm for the product {} (sizes m, n, k, then dtypes and forms)",
      fmt::join(key, " "));
  return all;
}

// Whether the product may be run several times now.
bool may_measure(const LibraryProduct& in) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(in.stream, &capture), "state of a stream");
  return capture == cudaStreamCaptureStatusNone && !in.accumulate &&
         !at::globalContext().deterministicAlgorithms();
}

// Of one product; infinite where the algorithm does not run.
float milliseconds(const LibraryProduct& in, const cublasLtMatmulAlgo_t& algorithm) {
  const Event from = make_event(), to = make_event();
  if (start_product(in, algorithm) != CUBLAS_STATUS_SUCCESS) {
    return std::numeric_limits<float>::infinity();
  }
  check(cudaEventRecord(from.get(), in.stream), "an event");
  for (int run = 0; run < kTimedRuns; ++run) check(start_product(in, algorithm), "a timed product");
  check(cudaEventRecord(to.get(), in.stream), "an event");
  check(cudaEventSynchronize(to.get()), "timed products");
  float all = 0;
  check(cudaEventElapsedTime(&all, from.get(), to.get()), "time between events");
  return all / kTimedRuns;
}

// What a file says may be anything.
bool is_usable(const LibraryProduct& in, const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result = {};
  return cublasLtMatmulAlgoCheck(in.handle, in.description, in.a_layout, in.b_layout, in.out_layout,
                                 in.out_layout, &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.state == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<std::size_t>(kProductWorkspaceBytes);
}

}  // namespace

cublasStatus_t start_product(const LibraryProduct& in, const cublasLtMatmulAlgo_t& algorithm) {
  const Tensor workspace = empty({kProductWorkspaceBytes}, DType::Byte, in.device);
  const float one = 1.0F, beta = in.accumulate ? 1.0F : 0.0F;
  return cublasLtMatmul(in.handle, in.description, &one, in.a, in.a_layout, in.b, in.b_layout,
                        &beta, in.out, in.out_layout, in.out, in.out_layout, &algorithm,
                        workspace.mutable_data_ptr(),
                        static_cast<std::size_t>(kProductWorkspaceBytes), in.stream);
}

cublasLtMatmulAlgo_t ProductAlgorithms::of(const LibraryProduct& in, const ProductKey& key) {
  const std::scoped_lock lock(mutex_);
  ProductKey here = key;
  here.push_back(in.device.index());
  const auto known = known_.find(here);
  if (known != known_.end()) return known->second;
  const cublasLtMatmulAlgo_t choice =
      may_measure(in) ? fastest(in, key) : candidates(in, key, 1).front();
  return known_.emplace(std::move(here), choice).first->second;
}

cublasLtMatmulAlgo_t ProductAlgorithms::fastest(const LibraryProduct& in, const ProductKey& key) {
  AlgorithmFile& file = file_of(in.device);
  if (const AlgorithmWords* words = file.find(key)) {
    const auto kept = std::bit_cast<cublasLtMatmulAlgo_t>(*words);
    if (is_usable(in, kept)) return kept;
  }
  if (searches_ == kMaxSearches) return candidates(in, key, 1).front();
  ++searches_;
  // Another thread's recording of a step shall not forbid this one to wait.
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  const std::vector<cublasLtMatmulAlgo_t> all = candidates(in, key, kCandidates);
  const float first = milliseconds(in, all.front());
  std::size_t best = 0;
  float least = first * kWorthwhile;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const float time = milliseconds(in, all[i]);
    if (time >= least) continue;
    least = time;
    best = i;
  }
  log::debug("product {}: algorithm {} of {}, {:.4f} ms instead of {:.4f}", fmt::join(key, " "),
             best, all.size(), best == 0 ? first : least, first);
  file.put(key, std::bit_cast<AlgorithmWords>(all[best]));
  return all[best];
}

AlgorithmFile& ProductAlgorithms::file_of(Device device) {
  const std::string name = at::cuda::getDeviceProperties(device.index())->name;
  const auto library = static_cast<std::int64_t>(cublasLtGetVersion());
  return files_.try_emplace(name, user_cache_folder(), name, library).first->second;
}

}  // namespace pentatron::tensor
