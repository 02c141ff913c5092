// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <filesystem>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/tensor/device_table.h"

namespace pentatron::tensor {
namespace {

constexpr const char* kLibraryName = "libpentatron_cuda.so";
constexpr const char* kRegister = "pentatron_cuda_register";

std::optional<DeviceTable>& table_slot() {
  static std::optional<DeviceTable> table;
  return table;
}

// The driver's own words for a code, through its library.
std::string driver_message(void* driver, int code) {
  using GetErrorString = int (*)(int, const char**);
  const auto get = reinterpret_cast<GetErrorString>(::dlsym(driver, "cuGetErrorString"));
  const char* text = nullptr;
  if (get != nullptr) get(code, &text);
  return text != nullptr ? text : "driver error " + std::to_string(code);
}

// GPUs by the driver alone: a machine without a GPU has no driver library, and then nothing is
// loaded.
int count_gpus(std::string& reason) {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    reason = "this machine has no CUDA driver (libcuda.so.1)";
    return 0;
  }
  using Init = int (*)(unsigned int);
  using Count = int (*)(int*);
  const auto init = reinterpret_cast<Init>(::dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<Count>(::dlsym(driver, "cuDeviceGetCount"));
  if (init == nullptr || count == nullptr) {
    reason = "libcuda.so.1 is no CUDA driver";
    return 0;
  }
  int gpus = 0;
  int code = init(0);
  if (code == 0) code = count(&gpus);
  if (code != 0) {
    reason = fmt::format("the CUDA driver says: {}", driver_message(driver, code));
    return 0;
  }
  if (gpus == 0) reason = "the CUDA driver shows no GPU (CUDA_VISIBLE_DEVICES)";
  return gpus;
}

std::filesystem::path folder_of_this_library() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&load_cuda_library), &info) == 0) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

CudaLibrary open_library() {
  CudaLibrary library;
  library.gpus = count_gpus(library.reason);
  if (library.gpus == 0) return library;
  const std::filesystem::path path = folder_of_this_library() / kLibraryName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    library.reason = fmt::format(
        "{} is missing beside the program's library: build with the CUDA toolkit "
        "(PENTATRON_CUDA=ON)",
        kLibraryName);
    return library;
  }
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    const char* text = ::dlerror();
    library.reason = fmt::format(
        "{} cannot be loaded: {} (LD_LIBRARY_PATH must name the torch wheel's lib folder and "
        "NVIDIA's)",
        kLibraryName, text != nullptr ? text : "unknown");
    return library;
  }
  using Register = void (*)();
  const auto enter = reinterpret_cast<Register>(::dlsym(handle, kRegister));
  if (enter == nullptr) {
    library.reason =
        fmt::format("{} has no {}: it belongs to another build", kLibraryName, kRegister);
    return library;
  }
  try {
    enter();
    device_table().start();
    library.available = true;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    library.reason = fmt::format("CUDA does not start: {}", text.substr(0, text.find('\n')));
    table_slot().reset();
  }
  return library;
}

std::string count_text(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

c10::DeviceAllocator& allocator() { return *c10::getDeviceAllocator(c10::DeviceType::CUDA); }

}  // namespace

const CudaLibrary& load_cuda_library() {
  static const CudaLibrary kLibrary = open_library();
  return kLibrary;
}

void register_device_table(const DeviceTable& table) { table_slot() = table; }

const DeviceTable& device_table() {
  PENTATRON_CHECK(table_slot().has_value(), kUnsupported, "no CUDA here: {}",
                  load_cuda_library().reason);
  return *table_slot();
}

Device resolve_device(std::string_view asked, int local_rank, int local_ranks) {
  PENTATRON_CHECK(asked == "auto" || asked == "cpu" || asked == "cuda", kConfig,
                  "--device {}: expected auto, cpu or cuda", asked);
  PENTATRON_CHECK(local_rank >= 0 && local_rank < local_ranks, kConfig,
                  "local rank {} is outside the {} of this machine (LOCAL_RANK, LOCAL_WORLD_SIZE)",
                  local_rank, count_text(local_ranks, "rank"));
  if (asked == "cpu") return kCpu;
  const CudaLibrary& library = load_cuda_library();
  if (!library.available) {
    PENTATRON_CHECK(asked == "auto", kConfig, "--device cuda with {}: {}; use --device cpu",
                    count_text(library.gpus, "GPU"), library.reason);
    // A machine whose GPUs cannot be used is worth a warning; one without GPUs is not.
    if (library.gpus > 0) {
      log::warn("{} left unused: {}", count_text(library.gpus, "GPU"), library.reason);
    }
    return kCpu;
  }
  PENTATRON_CHECK(local_ranks <= library.gpus, kConfig,
                  "{} on this machine, but only {} to give them: start at most {} here, show more "
                  "GPUs (CUDA_VISIBLE_DEVICES), or use --device cpu",
                  count_text(local_ranks, "rank"), count_text(library.gpus, "GPU"), library.gpus);
  return Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(local_rank));
}

std::vector<GpuInfo> gpus() {
  return load_cuda_library().available ? device_table().gpus() : std::vector<GpuInfo>{};
}

CudaVersions cuda_versions() {
  return load_cuda_library().available ? device_table().versions() : CudaVersions{};
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string cudnn_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void use_device(Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

void synchronize(Device device) {
  if (device.is_cpu()) return;
  try {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  } catch (const std::exception& error) {
    PENTATRON_THROW(kCuda, "{}: {}", device.str(), error.what());
  }
}

DeviceMemory device_memory(Device device) {
  if (device.is_cpu()) return {};
  const auto stats = allocator().getDeviceStats(device.index());
  constexpr std::size_t kAll = 0;  // the statistics' first entry counts all pools
  return {.allocated = stats.allocated_bytes[kAll].current,
          .reserved = stats.reserved_bytes[kAll].current,
          .peak_allocated = stats.allocated_bytes[kAll].peak,
          .peak_reserved = stats.reserved_bytes[kAll].peak,
          .allocations = stats.allocation[kAll].current,
          .device_allocations = stats.num_device_alloc,
          .retries = stats.num_alloc_retries,
          .out_of_memory = stats.num_ooms};
}

void reset_peak_memory(Device device) {
  if (!device.is_cpu()) allocator().resetPeakStats(device.index());
}

void empty_device_cache() {
  if (load_cuda_library().available) allocator().emptyCache();
}

bool release_devices() noexcept {
  // Only if CUDA was in use: this must not be what loads it.
  if (!table_slot().has_value()) return false;
  try {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    guard.synchronizeDevice(guard.getDevice().index());
    allocator().emptyCache();
  } catch (const std::exception& error) {
    log::debug("the GPU could not be left in order: {}", error.what());
  }
  return true;
}

}  // namespace pentatron::tensor
