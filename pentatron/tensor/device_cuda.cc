// SPDX-License-Identifier: Apache-2.0
// The device table of the CUDA library.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/tensor/device_table.h"
#include "pentatron/tensor/device_trace.h"

namespace pentatron::tensor {
namespace {

void check(cudaError_t code, std::string_view what) {
  PENTATRON_CHECK(code == cudaSuccess, kCuda, "{}: {}", what, cudaGetErrorString(code));
}

void start() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "counting GPUs");
  PENTATRON_CHECK(at::globalContext().hasCUDA(), kCuda,
                  "the tensor library was used before its CUDA side was loaded");
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
}

std::vector<GpuInfo> all_gpus() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "counting GPUs");
  std::vector<GpuInfo> result;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index), "asking for a GPU's properties");
    result.push_back({.name = properties.name,
                      .major = properties.major,
                      .minor = properties.minor,
                      .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                      .multiprocessors = properties.multiProcessorCount});
  }
  return result;
}

CudaVersions versions() {
  CudaVersions result;
  check(cudaDriverGetVersion(&result.driver), "asking for the driver's version");
  check(cudaRuntimeGetVersion(&result.runtime), "asking for the runtime's version");
  if (ncclGetVersion(&result.nccl) != ncclSuccess) result.nccl = 0;
  result.cudnn = static_cast<int>(at::Context::versionCuDNN());
  return result;
}

bool capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(), &status),
        "asking whether a stream is being recorded");
  return status != cudaStreamCaptureStatusNone;
}

class CudaStepGraph final : public DeviceGraph {
 public:
  explicit CudaStepGraph(Device device)
      : device_(device), stream_(c10::cuda::getStreamFromPool(false, device.index())) {}

  void warm_up(const std::function<void()>& step) override {
    const c10::cuda::CUDAGuard on_gpu(device_);
    const c10::Stream caller = c10::cuda::getCurrentCUDAStream().unwrap();
    join(caller, stream_.unwrap());
    {
      const c10::cuda::CUDAStreamGuard on_side(stream_);
      step();
    }
    join(stream_.unwrap(), caller);
  }

  void capture(const std::function<void()>& step, const DeviceGraph* shares) override {
    const c10::cuda::CUDAGuard on_gpu(device_);
    // What the caller queued must have run: the recorded step sees its results as plain memory.
    check(cudaDeviceSynchronize(), "waiting before a step is recorded");
    c10::cuda::CUDACachingAllocator::emptyCache();
    // The allocator uses a block again on the stream that it was made for.
    if (shares != nullptr) stream_ = static_cast<const CudaStepGraph*>(shares)->stream_;
    const c10::cuda::CUDAStreamGuard on_side(stream_);
    c10::MempoolId_t pool{0, 0};  // one of its own
    if (shares != nullptr) pool = static_cast<const CudaStepGraph*>(shares)->pool_;
    // Other threads (the watch over communicators, loaders) go on meanwhile.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      step();
    } catch (const std::exception& error) {
      abandon();
      PENTATRON_THROW(kCuda, "a step could not be recorded as a CUDA graph: {}", first_line(error));
    }
    try {
      graph_.capture_end();
    } catch (const std::exception& error) {
      PENTATRON_THROW(kCuda, "a step could not be recorded as a CUDA graph: {}", first_line(error));
    }
    pool_ = graph_.pool();
  }

  void replay() override {
    const c10::cuda::CUDAGuard on_gpu(device_);
    graph_.replay();  // in the current stream
  }

 private:
  static void join(const c10::Stream& from, const c10::Stream& to) {
    c10::Event event(c10::DeviceType::CUDA);
    event.record(from);
    event.block(to);
  }

  static std::string first_line(const std::exception& error) {
    const auto* library = dynamic_cast<const c10::Error*>(&error);
    std::string text = library != nullptr ? library->what_without_backtrace() : error.what();
    return text.substr(0, text.find('\n'));
  }

  // Ends the recording that failed, so that the stream can be used again.
  void abandon() {
    try {
      graph_.capture_end();
    } catch (const std::exception& error) {
      log::debug("ending a failed recording: {}", first_line(error));
    }
    static_cast<void>(cudaGetLastError());
  }

  Device device_;
  c10::cuda::CUDAStream stream_;
  c10::MempoolId_t pool_{0, 0};  // of its capture
  at::cuda::CUDAGraph graph_;
};

std::unique_ptr<DeviceGraph> make_graph(Device device) {
  return std::make_unique<CudaStepGraph>(device);
}

}  // namespace

void register_cuda_device() {
  register_device_table({.start = &start,
                         .gpus = &all_gpus,
                         .versions = &versions,
                         .capturing = &capturing,
                         .make_graph = &make_graph,
                         .make_trace = &make_cuda_trace});
}

}  // namespace pentatron::tensor
