// SPDX-License-Identifier: Apache-2.0
// Records of kernels by CUPTI, whose library is opened by name: torch brings it, and a machine that
// never traces need not have it.
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>

#include "pentatron/base/error.h"
#include "pentatron/tensor/device_trace.h"

namespace pentatron::tensor {
namespace {

constexpr std::size_t kRecordBytes = std::size_t{8} << 20;  // of one buffer that CUPTI fills
constexpr std::size_t kAlignment = 8;                       // CUPTI's, of its buffers
constexpr std::array kActivities{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                 CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME,
                                 CUPTI_ACTIVITY_KIND_DRIVER};

struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiGetTimestamp) timestamp = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
};

template <typename F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  PENTATRON_CHECK(function != nullptr, kCuda, "libcupti has no {}: --trace on a GPU needs CUPTI 13",
                  name);
}

const Cupti& cupti() {
  static const Cupti kTable = [] {
    void* library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    const char* problem = library == nullptr ? dlerror() : nullptr;
    PENTATRON_CHECK(library != nullptr, kCuda,
                    "--trace on a GPU needs NVIDIA's libcupti.so.13, which could not be opened: {}",
                    problem != nullptr ? problem : "no reason given");
    Cupti found;
    find(library, "cuptiActivityRegisterCallbacks", found.register_callbacks);
    find(library, "cuptiActivityEnable", found.enable);
    find(library, "cuptiActivityDisable", found.disable);
    find(library, "cuptiActivityFlushAll", found.flush);
    find(library, "cuptiActivityGetNextRecord", found.next_record);
    find(library, "cuptiGetTimestamp", found.timestamp);
    find(library, "cuptiGetResultString", found.result_string);
    return found;
  }();
  return kTable;
}

void check(CUptiResult code, const char* what) {
  if (code == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  cupti().result_string(code, &text);
  PENTATRON_THROW(kCuda, "CUPTI, {}: {}", what, text != nullptr ? text : "unknown error");
}

// "void ns::kernel<int>(float*, int)" without return type and parameters; a C name as it is.
std::string kernel_name(const char* mangled) {
  if (mangled == nullptr) return "kernel";
  int status = 0;
  char* plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 && plain != nullptr ? plain : mangled;
  std::free(plain);
  if (name.starts_with("void ")) name.erase(0, 5);
  // The parameter list is the last pair of brackets that is no template argument's.
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')') ++depth;
    if (name[i] == '(' && --depth == 0) {
      if (i > 0 && name.ends_with(')')) name.erase(i);
      break;
    }
  }
  return name;
}

const char* copy_name(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy to host";
    default:
      return "copy";
  }
}

// CUPTI calls back from threads of its own, without an argument of ours: what it brings is kept
// here, for the one trace that a process may have at a time.
struct Records {
  std::mutex mutex;
  std::vector<DeviceSpan> spans;
  std::vector<std::uint32_t> correlations;         // of spans
  std::map<std::uint32_t, std::int64_t> launches;  // correlation: CUPTI's time of the call
};
Records& records() {
  static Records kept;
  return kept;
}

void keep(const CUpti_Activity* record, Records& kept) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      kept.spans.push_back({.name = kernel_name(kernel->name),
                            .stream = kernel->streamId,
                            .begin_ns = static_cast<std::int64_t>(kernel->start),
                            .end_ns = static_cast<std::int64_t>(kernel->end)});
      kept.correlations.push_back(kernel->correlationId);
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      kept.spans.push_back({.name = copy_name(copy->copyKind),
                            .stream = copy->streamId,
                            .begin_ns = static_cast<std::int64_t>(copy->start),
                            .end_ns = static_cast<std::int64_t>(copy->end),
                            .bytes = static_cast<std::int64_t>(copy->bytes)});
      kept.correlations.push_back(copy->correlationId);
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      kept.spans.push_back({.name = "fill",
                            .stream = fill->streamId,
                            .begin_ns = static_cast<std::int64_t>(fill->start),
                            .end_ns = static_cast<std::int64_t>(fill->end),
                            .bytes = static_cast<std::int64_t>(fill->bytes)});
      kept.correlations.push_back(fill->correlationId);
      return;
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: {
      const auto* call = reinterpret_cast<const CUpti_ActivityAPI*>(record);
      kept.launches[call->correlationId] = static_cast<std::int64_t>(call->start);
      return;
    }
    default:
      return;
  }
}

void give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kRecordBytes));
  *size = *buffer != nullptr ? kRecordBytes : 0;
  *most_records = 0;  // as many as fit
}

void take_buffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                 std::size_t /*size*/, std::size_t valid) {
  {
    Records& kept = records();
    const std::lock_guard lock(kept.mutex);
    CUpti_Activity* record = nullptr;
    while (cupti().next_record(buffer, valid, &record) == CUPTI_SUCCESS) keep(record, kept);
  }
  std::free(buffer);
}

class CudaTrace final : public DeviceTrace {
 public:
  void start() override {
    check(cupti().register_callbacks(&give_buffer, &take_buffer), "registering its callbacks");
    wait();
    {
      Records& kept = records();
      const std::lock_guard lock(kept.mutex);
      kept.spans.clear();
      kept.correlations.clear();
      kept.launches.clear();
    }
    for (const CUpti_ActivityKind kind : kActivities) {
      check(cupti().enable(kind), "starting to record");
    }
  }

  std::vector<DeviceSpan> stop() override {
    wait();
    for (const CUpti_ActivityKind kind : kActivities) {
      check(cupti().disable(kind), "ending the record");
    }
    check(cupti().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "taking the records");
    const std::int64_t offset = clock_offset();
    Records& kept = records();
    const std::lock_guard lock(kept.mutex);
    for (std::size_t i = 0; i < kept.spans.size(); ++i) {
      DeviceSpan& span = kept.spans[i];
      span.begin_ns += offset;
      span.end_ns += offset;
      const auto launch = kept.launches.find(kept.correlations[i]);
      if (launch != kept.launches.end()) span.launched_ns = launch->second + offset;
    }
    std::vector<DeviceSpan> spans = std::exchange(kept.spans, {});
    std::stable_sort(spans.begin(), spans.end(), [](const DeviceSpan& a, const DeviceSpan& b) {
      return a.begin_ns < b.begin_ns;
    });
    return spans;
  }

 private:
  static void wait() {
    const cudaError_t code = cudaDeviceSynchronize();
    PENTATRON_CHECK(code == cudaSuccess, kCuda, "waiting for the GPU: {}",
                    cudaGetErrorString(code));
  }

  // The wall clock minus CUPTI's.
  static std::int64_t clock_offset() {
    std::uint64_t theirs = 0;
    check(cupti().timestamp(&theirs), "reading its clock");
    const auto ours = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    return static_cast<std::int64_t>(ours.count()) - static_cast<std::int64_t>(theirs);
  }
};

}  // namespace

std::unique_ptr<DeviceTrace> make_cuda_trace() { return std::make_unique<CudaTrace>(); }

}  // namespace pentatron::tensor
